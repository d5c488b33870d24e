-- The rate limits of one credential, for all workers: which request may be sent now, and when the others may
-- (docs/decisions/0027-shared-rate-limits.md).
--
-- Times are milliseconds by the server's clock. A waiting request has a ticket in a queue, and with it a planned time:
-- its place in the queue times the distance between two requests. Sent requests stay in a log for a little longer than
-- a window. The log is decisive: no window ever has more requests or tokens than allowed.
--
-- KEYS  state (hash) · queue (ticket -> order) · due (ticket -> time of its next try) · log (pass -> time it was sent)
--       cost (pass -> tokens) · slots (pass -> end of its lease) · tags (tenant -> order of its last ticket)

local STATE, QUEUE, DUE, LOG, COST, SLOTS, TAGS = unpack(KEYS)
local verb, now, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local FASTER = 1.03       -- factor by which requests are planned faster than the limit, to make up for unused slots
local MARGIN = 0.015      -- of a window, by which the log keeps requests longer, since their travel times differ
local CREDIT = 0.05       -- of a window: how much unused time may be made up at once
local LATE = 2500         -- ms after its due time from which a ticket no longer delays the tickets behind it
local GONE = 30000        -- ms after its due time at which a ticket is dropped (its run was cancelled, or Redis was away)
local FAR = 20000         -- ms; a longer wait is halved, since by then more is known about the cost of calls
local USUAL = 500         -- assumed tokens of an answer before any is known
local LEAST = 0.1         -- share of a limit that remains at least, however often the vendor refuses
local CUT = 0.95          -- share of the limit that remains after one refusal
local PAUSE = 2           -- windows for which a vendor can pause an account at most; later requests find out the rest
local GROWTH = 0.1        -- share of the limit that returns in each window without a refusal
local LEARNS = 0.1        -- weight of the newest value in an average
local KEPT = 3600000      -- ms without use after which the state of a credential expires

if now == 0 then
  local clock = redis.call('TIME')
  now = clock[1] * 1000 + clock[2] / 1000
end

local s = {}
local fields = redis.call('HGETALL', STATE)
for i = 1, #fields, 2 do s[fields[i]] = tonumber(fields[i + 1]) end

local function keep()
  for name, value in pairs(s) do redis.call('HSET', STATE, name, string.format('%.17g', value)) end
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, KEPT) end
end

local function forget_old()
  local old = redis.call('ZRANGEBYSCORE', LOG, '-inf', now - window * (1 + MARGIN))
  for _, pass in ipairs(old) do
    s.used = (s.used or 0) - tonumber(redis.call('HGET', COST, pass) or 0)
    redis.call('HDEL', COST, pass)
    redis.call('ZREM', LOG, pass)
  end
  if redis.call('ZCARD', LOG) == 0 then s.used = 0 end
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', now - GONE)) do
    redis.call('ZREM', QUEUE, ticket)
    redis.call('ZREM', DUE, ticket)
  end
  redis.call('ZREMRANGEBYSCORE', SLOTS, '-inf', now)
end

local function average(old, new) return old and old + LEARNS * (new - old) or new end

-- the share of the limit that the vendor accepts now, after refusals
local function share()
  return math.min(1, (s.share or 1) + GROWTH * (now - (s.cut_at or now)) / window)
end

if verb == 'ask' then
  local requests, tokens, at_once = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  local ticket, pass, tenant = ARGV[7], ARGV[8], ARGV[9]
  local prompt, most, lease = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
  forget_old()
  if requests > 0 then requests = math.max(1, math.floor(requests * share())) end
  if tokens > 0 then tokens = tokens * share() end
  local each = requests > 0 and window / (requests * FASTER) or 0
  local a_token = tokens > 0 and window / (tokens * FASTER) or 0
  local answer = most < 0 and 0 or s.answer and s.answer + s.spread or (most > 0 and most or USUAL)  -- the surplus is returned when the request ends
  local cost = math.max(1, math.min(prompt + answer, tokens > 0 and tokens or math.huge))

  local order = redis.call('ZSCORE', QUEUE, ticket)
  if not order then  -- fair between tenants: the next ticket of a tenant comes one place after its last one
    if redis.call('ZCARD', QUEUE) == 0 then redis.call('DEL', TAGS) end
    order = math.max(s.turn or 0, tonumber(redis.call('HGET', TAGS, tenant) or 0)) + 1
    redis.call('HSET', TAGS, tenant, order)
    redis.call('ZADD', QUEUE, order, ticket)
  end
  redis.call('ZADD', DUE, now, ticket)  -- this ticket is asking now, so it is not late
  local late = redis.call('ZCOUNT', DUE, '-inf', now - LATE)
  local place = math.max(0, redis.call('ZRANK', QUEUE, ticket) - late)

  s.request_at = math.max(s.request_at or now, now - CREDIT * window)
  s.tokens_at = math.max(s.tokens_at or now, now - CREDIT * window)
  local at = math.max(s.paused or 0, s.request_at + place * each, s.tokens_at + place * (s.cost or 0) * a_token)

  local left = redis.call('ZCARD', LOG)
  if requests > 0 and left + place >= requests then
    local first = math.min(left - 1, left + place - requests)
    local oldest = redis.call('ZRANGE', LOG, first, first, 'WITHSCORES')[2]
    if oldest then at = math.max(at, oldest + window * (1 + MARGIN)) end
  end
  if tokens > 0 and (at <= now or place == 0) and (s.used or 0) + cost > tokens then
    local freed, found = 0, redis.call('ZRANGE', LOG, 0, 499, 'WITHSCORES')
    for i = 1, #found, 2 do
      freed = freed + tonumber(redis.call('HGET', COST, found[i]) or 0)
      at = math.max(at, found[i + 1] + window * (1 + MARGIN))
      if s.used - freed + cost <= tokens then break end
    end
  end
  if at_once > 0 then
    local behind = place - (at_once - redis.call('ZCARD', SLOTS))
    if behind >= 0 then at = math.max(at, now + math.max(50, (s.took or 1000) * (behind + 1) / at_once)) end
  end

  if at > now then
    if place > 0 and at - now > FAR then at = now + (at - now) / 2 end
    redis.call('ZADD', DUE, at, ticket)
    keep()
    return math.max(1, math.ceil(at - now))
  end
  redis.call('ZREM', QUEUE, ticket)
  redis.call('ZREM', DUE, ticket)
  s.turn = math.max(s.turn or 0, tonumber(order))
  redis.call('ZADD', LOG, now, pass)
  redis.call('HSET', COST, pass, cost)
  if at_once > 0 then redis.call('ZADD', SLOTS, now + lease, pass) end
  s.used = (s.used or 0) + cost
  s.request_at = s.request_at + each
  s.tokens_at = s.tokens_at + cost * a_token
  keep()
  return 0
end

if verb == 'settle' then
  local pass, tokens, total, prompt = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  local took, is_refused, pause = tonumber(ARGV[8]), ARGV[9] == '1', tonumber(ARGV[10])
  local longest = math.max(PAUSE * window, tonumber(ARGV[11] or 0))
  forget_old()
  redis.call('ZREM', SLOTS, pass)
  local reserved = tonumber(redis.call('HGET', COST, pass) or -1)
  if total >= 0 and reserved >= 0 then
    s.used = (s.used or 0) + total - reserved
    redis.call('HSET', COST, pass, total)
    if tokens > 0 and s.tokens_at then s.tokens_at = s.tokens_at + (total - reserved) * window / (tokens * FASTER) end
  end
  if is_refused then
    if now - (s.cut_at or 0) > window / 30 then  -- requests sent at the same time are refused for the same reason
      s.share = math.max(LEAST, share() * CUT)
      s.cut_at = now
    end
    s.paused = math.max(s.paused or 0, now + math.min(longest, math.max(pause, window / 60)))
  else
    if pause > 0 then s.paused = math.max(s.paused or 0, now + math.min(pause, CREDIT * window)) end
    if total >= 0 then
      s.cost = average(s.cost, total)
      if prompt >= 0 then  -- -1: embeddings, ranks and speech have no answer that uses tokens
        s.spread = average(s.spread, math.abs(total - prompt - (s.answer or total - prompt)))
        s.answer = average(s.answer, total - prompt)
      end
      s.took = average(s.took, took)
    end
  end
  keep()
  return 0
end

if verb == 'forget' then  -- the request no longer waits, or was permitted and did not learn it
  local ticket, pass = ARGV[4], ARGV[5]
  redis.call('ZREM', QUEUE, ticket)
  redis.call('ZREM', DUE, ticket)
  redis.call('ZREM', SLOTS, pass)
  return 0
end

if verb == 'renew' then
  return redis.call('ZADD', SLOTS, 'XX', now + tonumber(ARGV[5]), ARGV[4])
end

return redis.error_reply('no such verb: ' .. verb)
