package e2e

import (
	"syscall"
)

const (
	sigterm = syscall.SIGTERM
	sigint  = syscall.SIGINT
	sighup  = syscall.SIGHUP
	sigusr1 = syscall.SIGUSR1
)
