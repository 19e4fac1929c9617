-- Copies every leader-owned and runner-owned change of the job plane, and every submission, into hist, in the SAME
-- transaction, while the fence of the writer (if it has one) is held.

CREATE FUNCTION hist_acquire() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.hist (kind, role, generation, epoch, node, inc)
  VALUES ('acquire', 'role-' || NEW.role, NEW.generation, NEW.epoch, NEW.owner, NEW.incarnation);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_acquire AFTER INSERT OR UPDATE ON coordination.fence
  FOR EACH ROW EXECUTE FUNCTION hist_acquire();

-- The writer of a leader-owned change is whoever the transaction's own fence names; owner and
-- incarnation come from the fence row, which cannot move while the shared lock is held.
CREATE FUNCTION hist_lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  f record;
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.state = OLD.state THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.state = 'done' THEN
    INSERT INTO public.hist (kind, subject, attempt, state) VALUES ('complete', NEW.job_id, NEW.attempt, NEW.state);
    RETURN NULL;
  END IF;
  SELECT * INTO f FROM coordination.fence WHERE role = 1;
  INSERT INTO public.hist (kind, role, generation, epoch, node, inc, subject, attempt, state)
  VALUES ('write', 'role-1', coordination.fenced_generation(), coordination.fenced_epoch(), f.owner, f.incarnation, NEW.job_id, NEW.attempt, NEW.state);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_lease AFTER INSERT OR UPDATE ON forge.leases
  FOR EACH ROW EXECUTE FUNCTION hist_lease();

-- What a client submitted under a key that is a UUID can be held against what the client was told.
CREATE FUNCTION hist_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.hist (kind, op_id, subject)
  VALUES ('submit', CASE WHEN NEW.idempotency_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN NEW.idempotency_key::uuid END, NEW.id);
  RETURN NULL;
END $$;
CREATE TRIGGER hist_run AFTER INSERT ON forge.runs
  FOR EACH ROW EXECUTE FUNCTION hist_run();

GRANT SELECT, INSERT ON public.hist TO forgeyard_app, forgeyard_owner;

-- Grants made before the recording began.
INSERT INTO hist (kind, role, generation, epoch, node, inc)
SELECT 'acquire', 'role-' || role, generation, epoch, owner, incarnation FROM coordination.fence;
