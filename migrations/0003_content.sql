-- What jobs leave behind and what happened: logs, artifacts and the outbox of events. The bytes are in the CAS;
-- the rows say which of them belong to what, and so keep them from being collected.

-- +goose Up

-- One stored piece of an attempt's log. Runner-owned; written once, in order, without gaps.
CREATE TABLE forge.log_chunks (
    lease_id uuid NOT NULL REFERENCES forge.leases,
    start    bigint NOT NULL CHECK (start >= 0),          -- offset of its first byte in the log
    length   integer NOT NULL CHECK (length > 0),         -- of the bytes before compression
    digest   bytea NOT NULL CHECK (length(digest) = 32),  -- SHA-256 of the stored form: one zstd frame
    at       timestamptz NOT NULL DEFAULT coordination.clock(),
    PRIMARY KEY (lease_id, start)
);

-- One declared output of an attempt, kept. Runner-owned; written once, while the lease is active.
CREATE TABLE forge.artifacts (
    lease_id uuid NOT NULL REFERENCES forge.leases,
    name     text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    run_id   text COLLATE "C" NOT NULL REFERENCES forge.runs,
    job_id   text COLLATE "C" NOT NULL REFERENCES forge.jobs,
    path     text NOT NULL,                               -- where it was, and is put back, under the working directory
    digest   bytea NOT NULL CHECK (length(digest) = 32),  -- SHA-256 of the stored form: a tar in zstd
    size     bigint NOT NULL CHECK (size >= 0),           -- of the stored form
    at       timestamptz NOT NULL DEFAULT coordination.clock(),
    PRIMARY KEY (lease_id, name)
);
CREATE INDEX artifacts_run ON forge.artifacts (run_id);
CREATE INDEX artifacts_job ON forge.artifacts (job_id); -- or each pruned job would read the table

-- Whether a digest is still named, asked once more before its blob is deleted. Of a digest only equality is asked, and a
-- hash index of it is a quarter of the size of an ordered one.
CREATE INDEX runs_source ON forge.runs USING hash (source) WHERE source IS NOT NULL;
CREATE INDEX artifacts_digest ON forge.artifacts USING hash (digest);
CREATE INDEX log_chunks_digest ON forge.log_chunks USING hash (digest);

-- What each finished collection of garbage found and did.
CREATE TABLE forge.collections (
    at     timestamptz PRIMARY KEY DEFAULT coordination.clock(),
    node   text NOT NULL,
    report jsonb NOT NULL
);
GRANT SELECT, INSERT ON forge.collections TO forgeyard_app;

-- What happened, in the transaction in which it happened. A reader takes rows below pg_snapshot_xmin only, in the order
-- (xid, seq): so it misses none, though transactions commit out of order.
CREATE TABLE forge.outbox (
    xid    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq    bigint GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL DEFAULT coordination.clock(),
    kind   text NOT NULL CHECK (length(kind) BETWEEN 1 AND 64),
    run_id text COLLATE "C",
    job_id text COLLATE "C",
    data   jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (xid, seq)
);
CREATE INDEX outbox_run ON forge.outbox (run_id, xid, seq) WHERE run_id IS NOT NULL;

-- How far retention has cut the outbox: a reader that stopped before this point has missed something and is told so.
CREATE TABLE forge.outbox_floor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    xid xid8 NOT NULL,
    seq bigint NOT NULL
);
INSERT INTO forge.outbox_floor (xid, seq) VALUES ('0', 0);
-- +goose StatementBegin
CREATE FUNCTION forge.outbox_cut() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE forge.outbox_floor f SET xid = c.xid, seq = c.seq
    FROM (SELECT xid, seq FROM gone ORDER BY xid DESC, seq DESC LIMIT 1) c WHERE (c.xid, c.seq) > (f.xid, f.seq);
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER outbox_cut AFTER DELETE ON forge.outbox REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION forge.outbox_cut();
GRANT SELECT ON forge.outbox_floor TO forgeyard_app;

-- What the committed view has shown: leaders, role owners, members, exclusive operations. Projected by whichever node
-- leads; the id is made from the fact itself, so that it is told once however many leaders see it.
CREATE TABLE coordination.events (
    id      text COLLATE "C" PRIMARY KEY CHECK (length(id) <= 128),
    at      timestamptz NOT NULL DEFAULT coordination.clock(),
    kind    text NOT NULL CHECK (length(kind) BETWEEN 1 AND 64),
    data    jsonb NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT coordination.clock() -- the view showed it about then; what it still shows is kept, or it would be told again
);
CREATE INDEX events_seen ON coordination.events (seen_at);
GRANT SELECT, INSERT ON coordination.events TO forgeyard_app;
GRANT UPDATE (seen_at) ON coordination.events TO forgeyard_app;

-- Every change of a job's state is an event, whoever makes it: by trigger, so that none can be forgotten.
-- +goose StatementBegin
CREATE FUNCTION forge.jobs_born() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO forge.outbox (kind, run_id, job_id, data)
  SELECT 'job.' || n.state, n.run_id, n.id, jsonb_build_object('name', n.name) FROM born n ORDER BY n.seq;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_born AFTER INSERT ON forge.jobs REFERENCING NEW TABLE AS born
    FOR EACH STATEMENT EXECUTE FUNCTION forge.jobs_born();

-- +goose StatementBegin
CREATE FUNCTION forge.jobs_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO forge.outbox (kind, run_id, job_id, data)
  SELECT 'job.' || n.state, n.run_id, n.id,
         jsonb_build_object('name', n.name, 'attempt', n.attempt) ||
         CASE WHEN n.reason = '' THEN '{}' ELSE jsonb_build_object('reason', n.reason) END
    FROM moved n
   WHERE (n.id, n.state) NOT IN (SELECT o.id, o.state FROM was o) -- a join would be planned once, for the rows of the first call
   ORDER BY n.seq;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_moved AFTER UPDATE ON forge.jobs REFERENCING OLD TABLE AS was NEW TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION forge.jobs_moved();

GRANT SELECT, INSERT ON forge.log_chunks, forge.artifacts, forge.outbox TO forgeyard_app;

-- Retention: the scheduler's leader deletes what has ended long ago, in bounded batches.
GRANT DELETE ON forge.log_chunks, forge.artifacts, forge.outbox, forge.dispatch, forge.leases, forge.jobs, forge.runs,
    forge.collections, coordination.events TO forgeyard_app;
CREATE TRIGGER runs_pruned BEFORE DELETE ON forge.runs FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER jobs_pruned BEFORE DELETE ON forge.jobs FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER leases_pruned BEFORE DELETE ON forge.leases FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER dispatch_pruned BEFORE DELETE ON forge.dispatch FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER outbox_pruned BEFORE DELETE ON forge.outbox FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER artifacts_pruned BEFORE DELETE ON forge.artifacts FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER log_chunks_pruned BEFORE DELETE ON forge.log_chunks FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER collections_pruned BEFORE DELETE ON forge.collections FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
CREATE TRIGGER events_pruned BEFORE DELETE ON coordination.events FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');

-- What retention has removed so far. Leader-owned.
CREATE TABLE forge.retention (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    removed   jsonb NOT NULL DEFAULT '{}', -- rows by table
    passed_at timestamptz                  -- when a pass last found nothing more to remove; NULL: never
);
INSERT INTO forge.retention DEFAULT VALUES;
CREATE TRIGGER retention_leader_columns BEFORE INSERT OR UPDATE ON forge.retention
    FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
GRANT SELECT, UPDATE ON forge.retention TO forgeyard_app;
