// Package peers measures the job plane beside a job queue that its users know, on the same durable PostgreSQL. It is a
// module of its own, so that nothing of the peer enters the product's module; the pins that build together are repeated.
package peers
