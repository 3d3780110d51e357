-- Every key is built here, below the prefix of the one declared key. A hash tag in that prefix
-- keeps all of them in one slot of a cluster.
local queue = KEYS[1]
local prefix = string.sub(queue, 1, -(#'jobs:stream' + 1))
local delayed_key = prefix .. 'jobs:delayed'
local open_key = prefix .. 'jobs:open'
local tenants_key = prefix .. 'jobs:tenants'
local control = prefix .. 'jobs:control'

local function job_key(id) return prefix .. 'job:' .. id end
local function events_key(id) return prefix .. 'job:' .. id .. ':events' end
local function idempotency_key(name) return prefix .. 'idempotency:' .. name end
local function worker_key(consumer) return prefix .. 'jobs:worker:' .. consumer end
local function guard_key(duty) return prefix .. 'jobs:guard:' .. duty end
local function cron_key(name) return prefix .. 'jobs:cron:' .. name end
local function stats_key(minute) return prefix .. string.format('jobs:stats:%.0f', minute) end
local function index_key(tenant)
  if tenant and tenant ~= '' then return prefix .. 'jobs:index:' .. tenant end
  return prefix .. 'jobs:index'
end
