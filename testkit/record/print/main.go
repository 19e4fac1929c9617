// Command print prints what is owed, and what the chaos runs of these commits counted of it and beside it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: print FILE")
		os.Exit(2)
	}
	if err := show(context.Background(), os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(ctx context.Context, out io.Writer, file string) error {
	all, err := record.Read(file)
	if err != nil {
		return err
	}
	commits, err := record.Commits(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, append(record.Owed(), all.Of(commits)...))
	return err
}
