// Command print prints what the chaos runs of these commits counted, and what is owed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: print FILE")
		os.Exit(2)
	}
	all, err := record.Read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(all.Of(record.Commits(context.Background())))
}
