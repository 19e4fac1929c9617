-- Copies into hist, in the SAME transaction as the change and while the fence of its writer (if it has one) is held:
-- acquire   a fence that is raised
-- write     what a scheduler makes of leases (active, expired), jobs (queued, cancelled, skipped, failed) and orders (void);
--           a job that is leased has its lease's row
-- extend    a lease whose time a scheduler gives back, an order that it stamps again
-- complete  the result of a lease: an agent's, no scheduler's
-- submit    a run, with the key of its client
-- audit     an administrative act, with the daemon that it was asked of
-- The removal of a member is no row of PostgreSQL: whoever removes one notes it (AddRemoved). Nothing here says when a role
-- is given up (release), and heartbeats, deliveries, the scheduler's tick and its retention are not copied.

-- The writer of a leader-owned change is whoever the transaction's own fence names; owner and
-- incarnation come from the fence row, which cannot move while the shared lock is held.
CREATE FUNCTION hist_owned(p_kind text, p_subject text, p_attempt int, p_state text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  f record;
BEGIN
  SELECT * INTO f FROM coordination.fence WHERE role = 1;
  INSERT INTO public.hist (kind, role, generation, epoch, node, inc, subject, attempt, state)
  VALUES (p_kind, 'role-1', coordination.fenced_generation(), coordination.fenced_epoch(), f.owner, f.incarnation, p_subject, p_attempt, p_state);
END $$;

CREATE FUNCTION hist_acquire() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.hist (kind, role, generation, epoch, node, inc)
  VALUES ('acquire', 'role-' || NEW.role, NEW.generation, NEW.epoch, NEW.owner, NEW.incarnation);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_acquire AFTER INSERT OR UPDATE ON coordination.fence
  FOR EACH ROW EXECUTE FUNCTION hist_acquire();

-- A change of expires_at is a scheduler's only in a transaction with a fence; else it is a heartbeat.
CREATE FUNCTION hist_lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.state = OLD.state THEN
    IF NEW.expires_at <> OLD.expires_at AND coordination.fenced_epoch() IS NOT NULL THEN
      PERFORM public.hist_owned('extend', NEW.job_id, NEW.attempt, NEW.state);
    END IF;
  ELSIF TG_OP = 'UPDATE' AND NEW.state = 'done' THEN
    INSERT INTO public.hist (kind, subject, attempt, state) VALUES ('complete', NEW.job_id, NEW.attempt, NEW.state);
  ELSE
    PERFORM public.hist_owned('write', NEW.job_id, NEW.attempt, NEW.state);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER hist_lease AFTER INSERT OR UPDATE ON forge.leases
  FOR EACH ROW EXECUTE FUNCTION hist_lease();

CREATE FUNCTION hist_job() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM public.hist_owned('write', NEW.id, NEW.attempt, NEW.state);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_job AFTER UPDATE OF state ON forge.jobs FOR EACH ROW
  WHEN (NEW.state <> OLD.state AND NEW.state <> 'leased' AND coordination.fenced_epoch() IS NOT NULL) EXECUTE FUNCTION hist_job();

CREATE FUNCTION hist_order() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM public.hist_owned(CASE WHEN NEW.state = OLD.state THEN 'extend' ELSE 'write' END, NEW.lease_id::text, NULL, NEW.state);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_order AFTER UPDATE OF state, epoch, generation ON forge.dispatch FOR EACH ROW
  WHEN (coordination.fenced_epoch() IS NOT NULL) EXECUTE FUNCTION hist_order();

-- What a client submitted under a key that is a UUID can be held against what the client was told.
CREATE FUNCTION hist_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.hist (kind, op_id, subject)
  VALUES ('submit', CASE WHEN NEW.idempotency_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN NEW.idempotency_key::uuid END, NEW.id);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_run AFTER INSERT ON forge.runs
  FOR EACH ROW EXECUTE FUNCTION hist_run();

CREATE FUNCTION hist_audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.hist (kind, epoch, node, subject, state) VALUES ('audit', NEW.epoch, NEW.node, NEW.action || ' ' || NEW.target, NEW.outcome);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_audit AFTER INSERT ON coordination.audit
  FOR EACH ROW EXECUTE FUNCTION hist_audit();

GRANT SELECT, INSERT ON public.hist TO forgeyard_app, forgeyard_owner;

-- Grants made before the recording began.
INSERT INTO hist (kind, role, generation, epoch, node, inc)
SELECT 'acquire', 'role-' || role, generation, epoch, owner, incarnation FROM coordination.fence;
