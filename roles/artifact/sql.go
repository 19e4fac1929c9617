// The SQL of logs and of collection.

package artifact

// A malformed lease id is no lease, not an error of the database.
const leaseID = `CASE WHEN $1 ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN $1::text::uuid END`

const stateSQL = `
SELECT log_bytes, log_final, state = 'expired' FROM forge.leases WHERE id = ` + leaseID + ` AND agent_id = $2`

const readStateSQL = `
SELECT log_bytes, log_final, state = 'expired' FROM forge.leases WHERE id = ` + leaseID

// The row lock puts appends in order: of two that start at the same end, one finds it moved.
const appendSQL = `
WITH l AS (
    UPDATE forge.leases SET log_bytes = log_bytes + $4
     WHERE id = ` + leaseID + ` AND agent_id = $2 AND log_bytes = $3 AND NOT log_final
    RETURNING id
), c AS (
    INSERT INTO forge.log_chunks (lease_id, start, length, digest) SELECT id, $3, $4, $5 FROM l RETURNING 1
)
SELECT EXISTS (SELECT FROM c)`

const finishSQL = `
UPDATE forge.leases SET log_final = true WHERE id = ` + leaseID + ` AND agent_id = $2 AND log_bytes >= $3 AND NOT log_final`

// The chunk that holds the offset, and those after it; 262144 is MaxChunk.
const chunksSQL = `
SELECT start, length, digest FROM forge.log_chunks
 WHERE lease_id = ` + leaseID + ` AND start > $2::bigint - 262144 AND start + length > $2
 ORDER BY start LIMIT $3`

// markSQL reads every reference in pages by primary key: a cursor of two columns, and the digest. A table that
// gains a column with a digest gains a line here, or its blobs are collected; a test compares them with the schema.
var markSQL = [...]string{
	`SELECT id, '', source FROM forge.runs WHERE source IS NOT NULL AND id > $1 AND $2 = '' ORDER BY id LIMIT $3`,
	`SELECT lease_id::text, name, digest FROM forge.artifacts
	  WHERE (lease_id, name) > (coalesce(nullif($1, ''), '00000000-0000-0000-0000-000000000000')::uuid, $2) ORDER BY lease_id, name LIMIT $3`,
	`SELECT lease_id::text, start::text, digest FROM forge.log_chunks
	  WHERE (lease_id, start) > (coalesce(nullif($1, ''), '00000000-0000-0000-0000-000000000000')::uuid, coalesce(nullif($2, ''), '-1')::bigint)
	  ORDER BY lease_id, start LIMIT $3`,
}

// unreferencedSQL keeps those of some digests that no row names now.
const unreferencedSQL = `
SELECT d FROM unnest($1::bytea[]) d
 WHERE NOT EXISTS (SELECT FROM forge.runs WHERE source = d)
   AND NOT EXISTS (SELECT FROM forge.artifacts WHERE digest = d)
   AND NOT EXISTS (SELECT FROM forge.log_chunks WHERE digest = d)`
