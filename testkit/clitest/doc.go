// Package clitest runs the real binary as its users do, with pipes, and asserts
// what they see: standard error, exit status, files, processes left behind.
package clitest
