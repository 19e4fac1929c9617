// Command tally prints what the chaos runs of these commits counted, and what is owed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/forgeyard/forgeyard/testkit/chaos"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tally FILE")
		os.Exit(2)
	}
	all, err := chaos.ReadTally(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(all.Of(chaos.Commits(context.Background())))
}
