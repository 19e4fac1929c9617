//go:build !mutants

// What every build but a mutants build has: nothing planted, which the compiler sees.

package mutant

import "io/fs"

// Planted reports whether this process has the fault.
func Planted(Name) bool { return false }

// SQL returns the text with the fault that is planted into it.
func SQL(text string) string { return text }

// Files returns the files with the fault that is planted into one of them.
func Files(files fs.FS) fs.FS { return files }
