// The SQL of what agents say: runner-owned columns only, always under the row lock and the agent's certificate id.

package runner

// A row that is looked for by its id is compared with IS NOT DISTINCT FROM where an equality would match the condition
// of a partial index: while few rows are in that state the planner takes such an index for as good as the key, and reads
// all of it for each row of the batch once they are many.

const lockLeasesSQL = `
SELECT FROM forge.leases l JOIN unnest($1::text[]::uuid[], $2::text[]) AS m(id, agent) ON l.id = m.id AND l.agent_id = m.agent
 ORDER BY l.id FOR NO KEY UPDATE OF l`

const lockOrdersSQL = `
SELECT FROM forge.dispatch d JOIN unnest($1::text[]::uuid[], $2::text[]) AS m(id, agent) ON d.lease_id = m.id AND d.agent_id = m.agent
 WHERE d.state IS NOT DISTINCT FROM 'open' ORDER BY d.lease_id FOR NO KEY UPDATE OF d`

const beatSQL = `
UPDATE forge.leases l SET heartbeat_at = coordination.clock(), progress = greatest(l.progress, m.bytes), note = m.note,
       expires_at = greatest(l.expires_at, coordination.clock() + $5::interval)
  FROM unnest($1::text[]::uuid[], $2::text[], $3::bigint[], $4::text[]) AS m(id, agent, bytes, note)
 WHERE l.id = m.id AND l.agent_id = m.agent AND l.state IS NOT DISTINCT FROM 'active'
RETURNING l.agent_id, l.id::text`

// A lease is accepted by one process of its agent and by no other, not even in
// the moment in which the agent's link moves and both processes hold the order.
// One that its agent gave up is nobody's. One whose end was asked for is not
// started any more: its time ends instead, unless it was accepted before, for it
// may run, and its agent is told.
const acceptSQL = `
WITH m AS MATERIALIZED (
  SELECT m.id, m.agent, m.link, a.session
    FROM unnest($1::text[]::uuid[], $2::text[], $3::text[]) AS m(id, agent, link) JOIN forge.agents a ON a.id = m.agent AND a.link = m.link), mine AS (
  UPDATE forge.leases l SET session = m.session, accepted_at = coalesce(l.accepted_at, coordination.clock()), heartbeat_at = coordination.clock(),
         expires_at = CASE WHEN l.cancel_requested_at IS NULL THEN greatest(l.expires_at, coordination.clock() + $4::interval)
                           WHEN l.accepted_at IS NULL THEN least(l.expires_at, coordination.clock()) ELSE l.expires_at END
    FROM m WHERE l.id = m.id AND l.agent_id = m.agent AND l.state IS NOT DISTINCT FROM 'active' AND l.reason = '' AND (l.session IS NULL OR l.session = m.session)
  RETURNING l.id, m.link, l.cancel_requested_at IS NULL AS granted), sent AS (
  UPDATE forge.dispatch d SET state = 'delivered', delivered_at = coordination.clock()
    FROM mine WHERE d.lease_id = mine.id AND d.state IS NOT DISTINCT FROM 'open')
SELECT link, id::text FROM mine WHERE granted`

// againSQL tells whether a failed attempt of job j, which ended as e, is
// repeated: after 1 s, and twice as long each further time, up to 60 s.
const againSQL = `(e.outcome IN ('failed', 'timeout', 'error') AND j.failures < j.retries AND j.attempt < j.attempt_limit AND j.cancel_requested_at IS NULL)`

// A completion ends an active lease with its result, whoever leads and
// whichever daemon the agent reports to (§77); a repeated one finds it done and
// is accepted again. In the same statement the jobs that need the ended ones
// learn of it: how many of their needs are left, or (-1) that one will never
// succeed. They are locked in id order, and nobody but completions, each of
// which ends other jobs, waits for a job with another in its hands.
const completeSQL = `
WITH m AS MATERIALIZED (
  SELECT m.*, l.state AS was
    FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::bytea[], $7::text[], $8::bigint[])
         AS m(id, agent, outcome, code, took, tail, reason, log)
    JOIN forge.leases l ON l.id = m.id AND l.agent_id = m.agent), e AS (
  UPDATE forge.leases l SET state = 'done', ended_at = coordination.clock(), outcome = m.outcome, exit_code = m.code, duration_ms = m.took,
         output_tail = m.tail, reason = m.reason, note = '', log_final = l.log_final OR l.log_bytes >= m.log
    FROM m WHERE l.id = m.id AND l.agent_id = m.agent AND l.state IS NOT DISTINCT FROM 'active'
  RETURNING l.agent_id, l.id, l.job_id, l.outcome, l.reason), j AS (
  UPDATE forge.jobs j
     SET state = CASE WHEN e.outcome = 'succeeded' THEN 'succeeded' WHEN ` + againSQL + ` THEN 'backoff'
                      WHEN e.outcome = 'cancelled' OR j.cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE 'failed' END,
         failures = j.failures + (e.outcome IN ('failed', 'timeout', 'error'))::integer,
         not_before = CASE WHEN ` + againSQL + ` THEN coordination.clock() + least(interval '60 s', interval '1 s' * 2 ^ j.failures) END,
         reason = CASE WHEN e.outcome <> 'succeeded' AND j.cancel_requested_at IS NOT NULL AND j.reason <> '' THEN j.reason
                       WHEN e.outcome = 'succeeded' THEN '' ELSE e.reason END,
         finished_at = CASE WHEN ` + againSQL + ` THEN NULL ELSE coordination.clock() END
    FROM e WHERE j.id = e.job_id AND j.state = 'leased'
  RETURNING j.run_id, j.name, j.needed, j.state), told AS (
  SELECT run_id, name, state = 'succeeded' AS ok FROM j WHERE needed AND state <> 'backoff'), hit AS (
  SELECT d.id, count(*)::integer AS n, bool_and(told.ok) AS ok
    FROM told JOIN forge.jobs d ON d.run_id = told.run_id AND d.state = 'blocked' AND told.name = ANY (d.needs) GROUP BY d.id), held AS (
  SELECT d.id FROM forge.jobs d WHERE d.id IN (SELECT id FROM hit) AND d.state IS NOT DISTINCT FROM 'blocked' ORDER BY d.id FOR NO KEY UPDATE), needs AS (
  UPDATE forge.jobs d SET unmet = CASE WHEN d.unmet < 0 OR NOT hit.ok THEN -1 ELSE d.unmet - hit.n END
    FROM hit JOIN held USING (id) WHERE d.id = hit.id AND d.state IS NOT DISTINCT FROM 'blocked')
SELECT agent_id, id::text, true FROM e UNION ALL SELECT agent, id::text, false FROM m WHERE was = 'done'`

// A release gives a lease up at once by ending its time; the fenced expiry loop
// does the rest. The tick may add time to it, which only delays that. It is an
// answer: an agent that refuses is not one whose work loop is dead.
const releaseSQL = `
WITH m AS MATERIALIZED (
  SELECT m.*, l.state AS was
    FROM unnest($1::text[]::uuid[], $2::text[], $3::text[]) AS m(id, agent, reason) JOIN forge.leases l ON l.id = m.id AND l.agent_id = m.agent), given AS (
  UPDATE forge.leases l SET expires_at = least(l.expires_at, coordination.clock()), reason = coalesce(nullif(m.reason, ''), 'given up'), note = '',
         accepted_at = coalesce(l.accepted_at, coordination.clock()), heartbeat_at = coordination.clock()
    FROM m WHERE l.id = m.id AND l.state IS NOT DISTINCT FROM 'active')
SELECT agent, id::text, was <> 'done' FROM m`

// Of the agents that sent a heartbeat those come back whose link it is.
const heardSQL = `
WITH m AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::boolean[], $5::boolean[]) AS m(id, link, beat, accepted, closing)), held AS (
  SELECT a.id, m.link, m.beat, m.accepted, m.closing FROM forge.agents a JOIN m ON a.id = m.id AND a.link = m.link
   WHERE m.beat OR a.unaccepted <> 0 ORDER BY a.id FOR NO KEY UPDATE OF a)
UPDATE forge.agents a SET last_seen = coordination.clock(), unaccepted = CASE WHEN held.accepted THEN 0 ELSE a.unaccepted END,
       closing = a.closing OR held.closing
  FROM held WHERE a.id = held.id AND a.link = held.link
RETURNING a.link`
