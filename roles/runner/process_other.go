// Process attributes where there is no parent-death signal: a killed agent's task runs on until its time limit.

//go:build !linux

package runner

import "syscall"

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
