// Package actorchaos kills every kind of actor at random messages, on one node
// in virtual time: the standalone engine, the real coordination service, the
// real actor system and four roles that write.
//
// FORGEYARD_CHAOS_ROUNDS says how often each kind is killed (10), and
// FORGEYARD_CHAOS_SEED repeats a run; every test prints its seed.
package actorchaos
