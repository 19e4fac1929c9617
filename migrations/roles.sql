-- The two database roles. A superuser runs this once per server; repeating it changes nothing.
-- forgeyard_owner owns every object and runs migrations. It is a member of forgeyard_app because
-- ending the sessions that hold an old fence (coordination.raise_fence) needs that membership.
-- forgeyard_app is what daemons use: it owns nothing, so it can neither truncate nor disable triggers.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'forgeyard_app') THEN
    CREATE ROLE forgeyard_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'forgeyard_owner') THEN
    CREATE ROLE forgeyard_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION;
  END IF;
  GRANT forgeyard_app TO forgeyard_owner;
END
$$;
