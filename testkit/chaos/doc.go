// Package chaos breaks fleets of real processes for as long as it is given, by faults drawn from a seed.
//
// Its tests are built with the tag chaos only (`make chaos`); FORGEYARD_CHAOS_MINUTES
// bounds their time and FORGEYARD_CHAOS_SEED replays the draw of a run.
package chaos
