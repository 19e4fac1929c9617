// Command kill plants every fault of the catalog, one after the other, and fails unless each is caught by its test.
//
//	go run ./testkit/withpg -- go run ./testkit/mutants/kill [name ...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/forgeyard/forgeyard/testkit/mutants"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the named mutants, all without a name.
func run(ctx context.Context, only []string) (err error) {
	dir, err := os.MkdirTemp("", "forgeyard-mutants")
	if err != nil {
		return fmt.Errorf("a place for the test binaries: %w", err)
	}
	defer os.RemoveAll(dir)
	lab, err := mutants.NewLab(ctx, dir)
	if err != nil {
		return err
	}
	start, tried, killed := time.Now(), 0, 0
	fmt.Printf("%-8s %-27s %8s %8s  %s\n", "", "mutant", "without", "with", "test, and what it says")
	for _, c := range mutants.Catalog() {
		if len(only) > 0 && !slices.Contains(only, string(c.Mutant)) {
			continue
		}
		tried++
		t, err := lab.Try(ctx, c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		word, says := "killed", t.Finding()
		switch {
		case err == nil:
			killed++
		case errors.Is(err, mutants.ErrSurvived):
			word, says = "SURVIVED", c.Breaks
		default:
			word, says = "UNPROVEN", err.Error()
		}
		fmt.Printf("%-8s %-27s %7.1fs %7.1fs  %s %s\n%56s%s\n", word, c.Mutant, t.Clean.Took.Seconds(), t.Planted.Took.Seconds(), c.Test.Package, c.Test.Run, "", says)
	}
	fmt.Printf("%d mutants, %d killed, in %.0f s\n", tried, killed, time.Since(start).Seconds())
	if tried == 0 || killed < tried {
		return fmt.Errorf("%d of %d mutants were not caught", tried-killed, tried)
	}
	return nil
}
