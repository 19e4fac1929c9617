-- The schema coordination: who this database belongs to, the fences of the coordinated roles,
-- join tokens, audit. migrations/DESIGN.md tells why the fence has this form and no other.

-- +goose Up
CREATE SCHEMA IF NOT EXISTS coordination;
CREATE SCHEMA forge;
GRANT USAGE ON SCHEMA coordination, forge TO forgeyard_app;

-- Exactly one row, written by coordination.claim. It says which cluster owns this database, and on
-- which PostgreSQL history (system identifier and timeline) its fences were raised.
CREATE TABLE coordination.cluster (
  singleton         boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
  cluster_id        text        NOT NULL CHECK (length(cluster_id) = 26),
  generation        bigint      NOT NULL DEFAULT 1 CHECK (generation > 0),
  system_identifier bigint      NOT NULL,
  timeline          integer     NOT NULL,
  claimed_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per coordinated role: the only (generation, epoch) that may write leader-owned columns.
CREATE TABLE coordination.fence (
  role              smallint    PRIMARY KEY CHECK (role > 0),
  generation        bigint      NOT NULL CHECK (generation >= 0),
  epoch             bigint      NOT NULL CHECK (epoch > 0),
  owner             text        NOT NULL CHECK (owner <> ''),
  incarnation       text        NOT NULL CHECK (incarnation <> ''),
  system_identifier bigint      NOT NULL,
  timeline          integer     NOT NULL,
  raised_at         timestamptz NOT NULL
);

-- Single-use join tokens: their SHA-256, never the token.
CREATE TABLE coordination.join_tokens (
  hash        bytea       PRIMARY KEY CHECK (length(hash) = 32),
  cluster_id  text        NOT NULL,
  node_id     text        NOT NULL,
  created_by  text        NOT NULL,
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  redeemed_at timestamptz,
  certificate bytea       CHECK (length(certificate) = 32),
  CHECK ((redeemed_at IS NULL) = (certificate IS NULL))
);

-- Administrative acts, accepted or refused. Append-only for the app role.
CREATE TABLE coordination.audit (
  seq     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL,
  actor   text        NOT NULL,
  action  text        NOT NULL,
  target  text        NOT NULL,
  outcome text        NOT NULL,
  detail  text        NOT NULL,
  node    text        NOT NULL,
  epoch   bigint      NOT NULL
);

-- One row that every node writes to find out whether it can write.
CREATE TABLE coordination.probe (
  singleton boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
  at        timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO coordination.probe (at) VALUES (clock_timestamp());

-- The clock of every decision made in SQL. A harness replaces this function; nothing else reads a clock.
-- +goose StatementBegin
CREATE FUNCTION coordination.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT pg_catalog.clock_timestamp() $$;
-- +goose StatementEnd

-- The history this server is on: the timeline rises with every promotion of a standby and every
-- point-in-time recovery, the system identifier differs between servers that were initialised apart.
-- +goose StatementBegin
CREATE FUNCTION coordination.timeline() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION coordination.system_identifier() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT system_identifier FROM pg_control_system() $$;
-- +goose StatementEnd

-- claim gives an unclaimed database to a cluster and returns the cluster it belongs to.
-- +goose StatementBegin
CREATE FUNCTION coordination.claim(p_cluster text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  INSERT INTO coordination.cluster (cluster_id, system_identifier, timeline)
  VALUES (p_cluster, coordination.system_identifier(), coordination.timeline())
  ON CONFLICT (singleton) DO NOTHING;
  RETURN (SELECT cluster_id FROM coordination.cluster);
END
$$;
-- +goose StatementEnd

-- fence admits the transaction to write leader-owned columns of a role under exactly this
-- (generation, epoch), or raises FY001. It must be a statement of its own BEFORE the write, in the
-- same transaction: the shared lock keeps a takeover waiting until this transaction has ended, and
-- the fence row must be read by a statement whose snapshot is taken after the lock was granted.
-- In REPEATABLE READ the snapshot is older than the wait for the lock, hence FY005.
-- It runs with its caller's rights, for it needs no others: the app role may read the fence row. Each
-- name has its schema, operators too, so that no search_path, its caller's included, changes what it
-- does; a SET clause would pin the path as well, for a tenth more of what the fence costs.
-- +goose StatementBegin
CREATE FUNCTION coordination.fence(p_role smallint, p_generation bigint, p_epoch bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
AS $$
DECLARE
  held record;
BEGIN
  IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
    RAISE EXCEPTION 'fence needs READ COMMITTED, not %', pg_catalog.current_setting('transaction_isolation') USING ERRCODE = 'FY005';
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock_shared(1180237825, p_role);  -- 0x46590001
  PERFORM pg_catalog.set_config('forgeyard.fence', pg_catalog.concat_ws(':', p_role, p_generation, p_epoch), true)
     FROM coordination.fence f
    WHERE f.role OPERATOR(pg_catalog.=) p_role AND f.generation OPERATOR(pg_catalog.=) p_generation AND f.epoch OPERATOR(pg_catalog.=) p_epoch;
  IF NOT FOUND THEN
    SELECT f.generation, f.epoch INTO held FROM coordination.fence f WHERE f.role OPERATOR(pg_catalog.=) p_role;
    RAISE EXCEPTION 'role % is fenced at generation % epoch %, the caller has generation % epoch %',
      p_role, COALESCE(held.generation::pg_catalog.text, 'none'), COALESCE(held.epoch::pg_catalog.text, 'none'), p_generation, p_epoch
      USING ERRCODE = 'FY001';
  END IF;
END
$$;
-- +goose StatementEnd

-- raise_fence moves a role's fence up to a new owner. It is idempotent for the same owner and
-- incarnation. FY001: the fence is at a later generation. FY003: at this generation the fence is
-- above the caller, or equal and someone else's. FY004: this generation was fenced on another
-- PostgreSQL history. Bounded: sessions of old owners that keep the shared lock (a paused process
-- with an open transaction) are ended after each 50 ms of waiting; 55P03 after 2 s.
-- +goose StatementBegin
CREATE FUNCTION coordination.raise_fence(p_role smallint, p_generation bigint, p_epoch bigint, p_owner text, p_incarnation text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
  give_up timestamptz := clock_timestamp() + interval '2 seconds';
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'raise_fence needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = 'FY005';
  END IF;
  LOOP
    -- Before each wait: a caller that may not raise must not end the sessions of one that did.
    IF coordination.fence_stands(p_role, p_generation, p_epoch, p_owner, p_incarnation) THEN
      RETURN;
    END IF;
    BEGIN
      PERFORM pg_advisory_xact_lock(1180237825, p_role);
      EXIT;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() > give_up THEN
        RAISE EXCEPTION 'role % is still written under an older fence after 2 s', p_role USING ERRCODE = '55P03';
      END IF;
      PERFORM pg_terminate_backend(l.pid)
         FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.classid = 1180237825 AND l.objid = p_role::integer::oid AND l.objsubid = 2
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.granted AND l.mode = 'ShareLock' AND l.pid <> pg_backend_pid();
    END;
  END LOOP;
  IF coordination.fence_stands(p_role, p_generation, p_epoch, p_owner, p_incarnation) THEN
    RETURN;  -- the first attempt of this owner committed and its reply was lost
  END IF;
  INSERT INTO coordination.fence AS f (role, generation, epoch, owner, incarnation, system_identifier, timeline, raised_at)
  VALUES (p_role, p_generation, p_epoch, p_owner, p_incarnation, coordination.system_identifier(), coordination.timeline(), coordination.clock())
  ON CONFLICT (role) DO UPDATE SET (generation, epoch, owner, incarnation, system_identifier, timeline, raised_at)
    = (EXCLUDED.generation, EXCLUDED.epoch, EXCLUDED.owner, EXCLUDED.incarnation, EXCLUDED.system_identifier, EXCLUDED.timeline, EXCLUDED.raised_at);
END
$$;
-- +goose StatementEnd

-- fence_stands decides what a raise may do: true = the fence already is this owner's, false = it may
-- move up, an error = it may not.
-- +goose StatementBegin
CREATE FUNCTION coordination.fence_stands(p_role smallint, p_generation bigint, p_epoch bigint, p_owner text, p_incarnation text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  held record;
BEGIN
  SELECT f.* INTO held FROM coordination.fence f WHERE f.role = p_role;
  IF NOT FOUND THEN
    -- Never raised: the history is that on which the cluster claimed the database, at no epoch.
    SELECT c.generation, 0::bigint AS epoch, ''::text AS owner, ''::text AS incarnation, c.system_identifier, c.timeline INTO held FROM coordination.cluster c;
  END IF;
  IF held.generation IS NULL OR held.generation < p_generation THEN
    RETURN false;
  END IF;
  IF held.generation > p_generation THEN
    RAISE EXCEPTION 'role % is fenced at generation %, the caller has generation %', p_role, held.generation, p_generation USING ERRCODE = 'FY001';
  END IF;
  IF held.system_identifier <> coordination.system_identifier() OR held.timeline <> coordination.timeline() THEN
    RAISE EXCEPTION 'role % was fenced on PostgreSQL system % timeline %, this server is system % timeline %',
      p_role, held.system_identifier, held.timeline, coordination.system_identifier(), coordination.timeline() USING ERRCODE = 'FY004';
  END IF;
  IF held.epoch < p_epoch THEN
    RETURN false;
  END IF;
  IF held.epoch = p_epoch AND held.owner = p_owner AND held.incarnation = p_incarnation THEN
    RETURN true;
  END IF;
  RAISE EXCEPTION 'role % is fenced at epoch % of node % incarnation %, the caller has epoch %',
    p_role, held.epoch, held.owner, held.incarnation, p_epoch USING ERRCODE = 'FY003';
END
$$;
-- +goose StatementEnd

-- The last fence of this transaction, for column defaults, so that a row and the fence it was written
-- under cannot differ. NULL outside a fenced transaction: a NOT NULL column then refuses the row.
-- Bodies that are parsed here, not by their caller's search_path (nullif looks up an operator).
CREATE FUNCTION coordination.fenced_generation() RETURNS bigint
LANGUAGE sql STABLE
RETURN nullif(pg_catalog.split_part(pg_catalog.current_setting('forgeyard.fence', true), ':', 2), '')::bigint;
CREATE FUNCTION coordination.fenced_epoch() RETURNS bigint
LANGUAGE sql STABLE
RETURN nullif(pg_catalog.split_part(pg_catalog.current_setting('forgeyard.fence', true), ':', 3), '')::bigint;

-- require_fence('<role number>') refuses a write in a transaction that has not called fence for the
-- role (FY002). An accident guard: a plain-SQL user can forge the setting, privileges are the security.
-- For each statement where that is enough; without a SET clause, which would cost more than the check.
-- +goose StatementBegin
CREATE FUNCTION coordination.require_fence() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  IF (pg_catalog.split_part(pg_catalog.current_setting('forgeyard.fence', true), ':', 1) OPERATOR(pg_catalog.=) TG_ARGV[0]) IS NOT TRUE THEN
    RAISE EXCEPTION '% on %.% writes columns of role % outside a fence', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'FY002';
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
    RETURN OLD;
  END IF;
  RETURN NEW;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA coordination FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
  coordination.clock(), coordination.timeline(), coordination.system_identifier(),
  coordination.fence(smallint, bigint, bigint),
  coordination.raise_fence(smallint, bigint, bigint, text, text),
  coordination.fenced_generation(), coordination.fenced_epoch()
TO forgeyard_app;
GRANT SELECT ON coordination.cluster, coordination.fence TO forgeyard_app;
GRANT SELECT, UPDATE (at) ON coordination.probe TO forgeyard_app;
GRANT SELECT ON coordination.schema_version TO forgeyard_app;
GRANT SELECT, INSERT, UPDATE (redeemed_at, certificate) ON coordination.join_tokens TO forgeyard_app;
GRANT SELECT, INSERT ON coordination.audit TO forgeyard_app;
