-- The job plane: agents, runs, jobs, leases, dispatch and the scheduler's tick.
-- Who may write which column is in migrations/DESIGN.md; the triggers below
-- refuse leader-owned changes in a transaction that has not called the fence.

-- +goose Up

-- An agent as the daemon that last spoke with it knows it. Runner-owned.
CREATE TABLE forge.agents (
    id         text COLLATE "C" PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64), -- of its certificate
    session    text NOT NULL,            -- the agent process; the same across reconnects
    link       text,                     -- the transport session; NULL while no daemon holds one
    node       text,                     -- the daemon that holds the link
    slots      integer NOT NULL CHECK (slots BETWEEN 1 AND 1024),
    labels     text[] NOT NULL DEFAULT '{}',
    build      text NOT NULL DEFAULT '',
    first_seen timestamptz NOT NULL DEFAULT coordination.clock(),
    last_seen  timestamptz NOT NULL DEFAULT coordination.clock(),
    drain_requested_at timestamptz,                  -- nothing new is leased to it
    unaccepted         smallint NOT NULL DEFAULT 0,  -- rounds of leases in a row that it never accepted
    doubted_at         timestamptz,                  -- when the last such round was counted: leases from before are of it, too
    quarantined_at     timestamptz,                  -- nothing is leased to it until an operator clears this
    quarantine_reason  text NOT NULL DEFAULT '',
    closing            boolean NOT NULL DEFAULT false, -- the process is stopping: nothing new until its next hello
    CHECK ((link IS NULL) = (node IS NULL))
) WITH (fillfactor = 70);

-- A submission. Client-owned; its state is the sum of its jobs' and is not stored.
CREATE TABLE forge.runs (
    id              text COLLATE "C" PRIMARY KEY CHECK (length(id) = 26), -- ULID
    name            text NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    idempotency_key text CHECK (length(idempotency_key) BETWEEN 1 AND 128), -- of its submitter
    request_digest  bytea NOT NULL CHECK (length(request_digest) = 32),
    queue           text COLLATE "C" NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 64),
    source          bytea CHECK (length(source) = 32),    -- SHA-256 of the stored source tree; NULL: none
    submitted_by    text NOT NULL DEFAULT '',
    submitted_at    timestamptz NOT NULL DEFAULT coordination.clock(),
    CONSTRAINT runs_submitted_once UNIQUE (submitted_by, idempotency_key)
);

-- What is to run, and how far it has come.
--
--   blocked -> queued -> leased -> succeeded | failed | cancelled
--      |                 |    ^
--      +-> skipped       +-> backoff (a failed attempt that is repeated later)
--
-- Leader-owned: attempt, and every move of state but those out of 'leased' that end an attempt
-- with a result. Runner-owned: these. The rest is the client's.
CREATE TABLE forge.jobs (
    id            text COLLATE "C" PRIMARY KEY CHECK (length(id) = 26),   -- ULID
    seq           bigint GENERATED ALWAYS AS IDENTITY,                    -- queue order; no wall clock decides it
    run_id        text COLLATE "C" NOT NULL REFERENCES forge.runs,
    name          text NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    steps         jsonb NOT NULL                                          -- [{"name","argv"}] in order; the first that fails ends the attempt
                  CHECK (jsonb_typeof(steps) = 'array' AND jsonb_array_length(steps) BETWEEN 1 AND 64),
    env           jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(env) = 'object'),
    labels        text[] NOT NULL DEFAULT '{}',                           -- an agent must carry all of them
    priority      smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    timeout_ms    integer NOT NULL CHECK (timeout_ms BETWEEN 1 AND 86400000),
    queue         text COLLATE "C" NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 64), -- its run's
    needs         text[] NOT NULL DEFAULT '{}',                           -- names of jobs of the run that must succeed first
    needed        boolean NOT NULL DEFAULT false,                         -- some job of the run needs this one
    unmet         smallint NOT NULL DEFAULT 0,                            -- needs that have not succeeded yet; -1: one never will
    outputs       jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(outputs) = 'array'), -- [{"name","path"}] kept when it succeeds
    attempt_limit smallint NOT NULL DEFAULT 3 CHECK (attempt_limit BETWEEN 1 AND 10), -- of leases, lost ones among them
    attempt       smallint NOT NULL DEFAULT 0,                            -- leases made so far
    retries       smallint NOT NULL DEFAULT 0 CHECK (retries BETWEEN 0 AND 9), -- how often a failed attempt is repeated
    failures      smallint NOT NULL DEFAULT 0,                            -- attempts that failed so far
    not_before    timestamptz,                                            -- in 'backoff': when it may be queued again
    queued_at     timestamptz NOT NULL DEFAULT coordination.clock(),      -- since when it could have been leased
    cancel_requested_at timestamptz,
    state         text NOT NULL DEFAULT 'queued',
    reason        text NOT NULL DEFAULT '',                               -- why it is not 'succeeded'
    finished_at   timestamptz,
    UNIQUE (run_id, name),
    CONSTRAINT jobs_state CHECK (state IN ('blocked', 'queued', 'leased', 'backoff', 'succeeded', 'failed', 'cancelled', 'skipped')),
    CONSTRAINT jobs_attempt_limit CHECK (attempt BETWEEN 0 AND attempt_limit),
    CONSTRAINT jobs_backoff CHECK (state <> 'backoff' OR not_before IS NOT NULL),
    CONSTRAINT jobs_finished CHECK ((finished_at IS NULL) = (state IN ('blocked', 'queued', 'leased', 'backoff')))
) WITH (fillfactor = 80);

-- Each kind of queued jobs, which is what asks for the same labels in the same queue, in its order: the lease loop
-- leaps from kind to kind, so that jobs which no agent can run cost it nothing. Every index of what the scheduler
-- still has to do is partial, so that finished jobs cost it nothing either.
CREATE INDEX jobs_queue ON forge.jobs (queue, labels, priority DESC, seq) WHERE state = 'queued';
CREATE INDEX jobs_blocked ON forge.jobs (run_id) INCLUDE (queue) WHERE state = 'blocked'; -- also the jobs that a finished one may release
CREATE INDEX jobs_settled ON forge.jobs (id) WHERE state = 'blocked' AND unmet <= 0;
CREATE INDEX jobs_backoff ON forge.jobs (not_before) WHERE state = 'backoff';
CREATE INDEX jobs_cancel ON forge.jobs (id) WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL;

-- The right of one agent to run one attempt. Leader-owned: the row's making, job_id, attempt,
-- agent_id, epoch, generation, and the move of state to 'expired'. Client-owned: cancel_requested_at.
-- Runner-owned: everything else, under the row lock, WHERE id AND agent_id AND state = 'active'.
CREATE TABLE forge.leases (
    id                  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    job_id              text COLLATE "C" NOT NULL REFERENCES forge.jobs,
    attempt             smallint NOT NULL CHECK (attempt >= 1),
    agent_id            text COLLATE "C" NOT NULL, -- no reference: it is read from agents by the statement that makes the row, and no agent is ever deleted
    epoch               bigint NOT NULL DEFAULT coordination.fenced_epoch(),      -- the maker's; stays valid after failover
    generation          bigint NOT NULL DEFAULT coordination.fenced_generation(),
    leased_at           timestamptz NOT NULL DEFAULT coordination.clock(),
    expires_at          timestamptz NOT NULL,   -- on coordination.clock(), counting scheduler-active time
    state               text NOT NULL DEFAULT 'active',
    session             text,                   -- the agent process that accepted it
    accepted_at         timestamptz,
    heartbeat_at        timestamptz,
    progress            bigint NOT NULL DEFAULT 0 CHECK (progress >= 0), -- bytes of output so far
    cancel_requested_at timestamptz,
    outcome             text,
    exit_code           integer,
    duration_ms         bigint CHECK (duration_ms >= 0),
    output_tail         bytea CHECK (length(output_tail) <= 65536),
    log_bytes           bigint NOT NULL DEFAULT 0, -- of its log, stored so far
    log_final           boolean NOT NULL DEFAULT false, -- no more will come
    note                text NOT NULL DEFAULT '', -- what the attempt waits for, as its agent says
    reason              text NOT NULL DEFAULT '',
    ended_at            timestamptz,
    CONSTRAINT leases_attempt_once UNIQUE (job_id, attempt),
    CONSTRAINT leases_state CHECK (state IN ('active', 'done', 'expired')),
    CONSTRAINT leases_ended CHECK ((ended_at IS NULL) = (state = 'active')),
    CONSTRAINT leases_outcome CHECK ((outcome IS NOT NULL) = (state = 'done')
        AND (outcome IS NULL OR outcome IN ('succeeded', 'failed', 'timeout', 'cancelled', 'error')))
) WITH (fillfactor = 50);

-- One active lease a job, whatever else goes wrong (§38): this holds even with fencing off.
CREATE UNIQUE INDEX leases_one_active ON forge.leases (job_id) WHERE state = 'active';
-- Also what the expiry scan walks: expires_at stays out of every index, so that heartbeats are HOT updates. The id is in
-- it because statements look for a lease by both: a plan that takes this index must not read all leases of the agent.
CREATE INDEX leases_active_by_agent ON forge.leases (agent_id, id) WHERE state = 'active';

-- The order to hand a lease to its agent. Leader-owned: the row's making, epoch, generation (the
-- issuer's, re-stamped by a new leader) and the move of state to 'void'. The rest is the daemons'.
CREATE TABLE forge.dispatch (
    lease_id     uuid PRIMARY KEY, -- no reference: made with its lease by one statement, removed before it by one transaction
    agent_id     text COLLATE "C" NOT NULL,
    epoch        bigint NOT NULL DEFAULT coordination.fenced_epoch(),
    generation   bigint NOT NULL DEFAULT coordination.fenced_generation(),
    issued_at    timestamptz NOT NULL DEFAULT coordination.clock(),
    state        text NOT NULL DEFAULT 'open',
    delivered_at timestamptz,
    CONSTRAINT dispatch_state CHECK (state IN ('open', 'delivered', 'void')),
    CONSTRAINT dispatch_delivered CHECK (state <> 'delivered' OR delivered_at IS NOT NULL)
);

CREATE INDEX dispatch_open ON forge.dispatch (agent_id, lease_id) WHERE state = 'open';

-- The last moment at which a scheduler was active. Leader-owned.
CREATE TABLE forge.tick (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    at         timestamptz NOT NULL,
    epoch      bigint NOT NULL,
    generation bigint NOT NULL
);
INSERT INTO forge.tick (at, epoch, generation) VALUES (coordination.clock(), 0, 0);

CREATE TRIGGER jobs_born_queued BEFORE INSERT ON forge.jobs
    FOR EACH ROW WHEN (NEW.attempt <> 0 OR NEW.state NOT IN ('queued', 'blocked') OR (NEW.state = 'queued') <> (NEW.unmet = 0))
    EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER jobs_leader_columns BEFORE UPDATE OF attempt ON forge.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER jobs_leader_moves BEFORE UPDATE OF state ON forge.jobs
    FOR EACH ROW WHEN (OLD.state <> 'leased' OR NEW.state IN ('queued', 'leased'))
    EXECUTE FUNCTION coordination.require_fence('1');

CREATE TRIGGER leases_leader_columns
    BEFORE INSERT OR UPDATE OF id, job_id, attempt, agent_id, epoch, generation, leased_at ON forge.leases
    FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER leases_leader_moves BEFORE UPDATE OF state ON forge.leases
    FOR EACH ROW WHEN (OLD.state <> 'active' OR NEW.state <> 'done')
    EXECUTE FUNCTION coordination.require_fence('1');

CREATE TRIGGER dispatch_leader_columns
    BEFORE INSERT OR UPDATE OF lease_id, agent_id, epoch, generation, issued_at ON forge.dispatch
    FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER dispatch_leader_moves BEFORE UPDATE OF state ON forge.dispatch
    FOR EACH ROW WHEN (OLD.state = 'void' OR NEW.state = 'void')
    EXECUTE FUNCTION coordination.require_fence('1');

CREATE TRIGGER tick_leader_columns BEFORE INSERT OR UPDATE ON forge.tick
    FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');

GRANT SELECT, INSERT, UPDATE ON forge.agents, forge.runs, forge.jobs, forge.leases, forge.dispatch TO forgeyard_app;
GRANT SELECT, UPDATE ON forge.tick TO forgeyard_app;
