// Command forgeyard is the whole product in one binary. This file only wires the command tree to the process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, cli.System(), cli.Deps{Version: version}, os.Args[1:])
}
