// Sets the theme before the first paint: the chosen one, else that of the system.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = localStorage.getItem("jobwire.theme");
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
  };
  window.flipTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("jobwire.theme", next);
    apply();
  };
  dark.addEventListener("change", apply);
  apply();
})();
