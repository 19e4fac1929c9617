// Command forgeyard is the whole product in one binary. This file only wires the command tree to the process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/agent"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/dev"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	build := cli.BuildVersion(version)
	return cli.Run(ctx, cli.System(), cli.Deps{
		Daemon: daemon.Command(build), Agent: agent.Command(build.Version), Dev: dev.Command(), Demo: dev.DemoCommand(), Version: version,
	}, os.Args[1:])
}
