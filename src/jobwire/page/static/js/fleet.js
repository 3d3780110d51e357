// How a system is doing, in words.
const BEHIND_MS = 2000;

// Overloaded and dead look different.
export function takenBy(row) {
  if (row.workers === 0 && (row.waiting || row.running)) return ["warn", "No worker"];
  if (row.waiting && row.oldest_waiting_ms > BEHIND_MS && row.slots && row.running >= row.slots) return ["behind", "Behind"];
  if (row.waiting || row.running) return ["ok", "Keeping up"];
  return ["waiting", row.workers === 0 ? "Quiet, no worker" : "Quiet"];
}
