// Command confine becomes the program that follows, with its file operations in the hands of whoever started it by disk.Start.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/forgeyard/forgeyard/testkit/disk"
)

func main() {
	err := errors.New("usage: confine PROGRAM [ARG…], started by disk.Start")
	if disk.Supervised() && len(os.Args) > 1 {
		err = disk.Become(os.Args[1:])
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
