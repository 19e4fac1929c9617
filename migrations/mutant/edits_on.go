//go:build mutants

// Faults in SQL: what each replaces. A text that an edit does not fit any more panics, it does not survive.

package mutant

type edit struct{ old, new string }

// The lines of coordination.fence.
const (
	fenceLock  = "  PERFORM pg_catalog.pg_advisory_xact_lock_shared(1180237825, p_role);  -- 0x46590001\n"
	fenceRead  = "f.epoch OPERATOR(pg_catalog.=) p_epoch;\n  IF NOT FOUND"
	fenceOwner = "coordination.fence(p_role smallint, p_generation bigint, p_epoch bigint) RETURNS void\nLANGUAGE plpgsql VOLATILE SECURITY INVOKER"
)

var edits = map[Name][]edit{
	PlainReadFence: {{fenceLock, ""}},
	// The app role may not lock the row, so the function does it as its owner.
	KeyShareFence: {
		{fenceLock, ""},
		{fenceRead, "f.epoch OPERATOR(pg_catalog.=) p_epoch FOR KEY SHARE;\n  IF NOT FOUND"},
		{fenceOwner, "coordination.fence(p_role smallint, p_generation bigint, p_epoch bigint) RETURNS void\nLANGUAGE plpgsql VOLATILE SECURITY DEFINER"},
	},
	// The head of the outbox is the last number below every running transaction: from there on, numbers alone.
	CursorBySeq: {
		{
			"WHERE (o.xid, o.seq) > ($1::text::xid8, $2::bigint) AND o.xid < pg_snapshot_xmin(pg_current_snapshot())",
			"WHERE o.seq > CASE $2::bigint WHEN 9223372036854775807 THEN (SELECT coalesce(max(h.seq), 0) FROM forge.outbox h WHERE h.xid <= $1::text::xid8) ELSE $2::bigint END",
		},
		{"ORDER BY o.xid, o.seq", "ORDER BY o.seq"},
	},
}
