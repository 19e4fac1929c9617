// What is wrong with a command line: arguments that are too many or too few, flags of the wrong type.

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// args checks the number of arguments; names say what they are.
func args(least, most int, names string) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) >= least && (most < 0 || len(given) <= most) {
			return nil
		}
		return wrongArguments(c, names, strconv.Itoa(len(given)))
	}
}

// noArguments is for commands that take flags only.
func noArguments(c *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	return wrongArguments(c, "", strconv.Itoa(len(given)))
}

// wrongArguments says what a command takes; no names are no arguments.
func wrongArguments(c *cobra.Command, names, given string) error {
	if names == "" {
		return usagef("leave them out; its flags: "+c.CommandPath()+" --help", "%s takes no arguments, %s given", c.CommandPath(), given)
	}
	return usagef("usage: "+c.CommandPath()+" "+names, "%s takes %s, %s given", c.CommandPath(), names, given)
}

// cobraError makes cobra's own plain errors usage errors that say what the command meant takes.
func cobraError(c *cobra.Command, err error) error {
	var known *usageError
	message := err.Error()
	switch {
	case errors.As(err, &known):
		return err
	case strings.HasPrefix(message, "unknown command") && !c.HasAvailableSubCommands():
		return wrongArguments(c, "", strconv.Itoa(len(c.Flags().Args()))) // what cobra.NoArgs says of any argument
	case strings.HasPrefix(message, "unknown command"):
		return usagef("see: "+c.CommandPath()+" --help", "%s", message)
	case strings.HasPrefix(message, "accepts "), strings.HasPrefix(message, "requires at "):
		names := strings.TrimPrefix(strings.TrimPrefix(c.Use, c.Name()), " ")
		return wrongArguments(c, names, message[strings.LastIndexByte(message, ' ')+1:]) // each of these ends in the number given
	}
	return err
}

// flagError says what a flag expects, where the library tells how its parser failed.
func flagError(c *cobra.Command, err error) error {
	message := err.Error()
	if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) {
		if want := expected(wrong.GetFlag(), err); want != "" {
			message = fmt.Sprintf("--%s takes %s, not %q", wrong.GetFlag().Name, want, wrong.GetValue())
		}
	}
	return usagef("see: "+c.CommandPath()+" --help", "%s", message)
}

// wantedFormat finds json or yaml on a command line that was not read to its
// end, because a flag before it is wrong: the error is a document all the same.
func wantedFormat(args []string) string {
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, "--output=")
		switch {
		case arg == "--":
			return ""
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			value = args[i+1]
		case !ok:
			value = strings.TrimPrefix(strings.TrimPrefix(arg, "-o"), "=")
		}
		if (value == formatJSON || value == formatYAML) && value != arg {
			return value
		}
	}
	return ""
}

// expected describes the values of a flag; "" where the error says it itself.
func expected(f *pflag.Flag, err error) string {
	tooBig := errors.Is(err, strconv.ErrRange)
	switch kind := f.Value.Type(); {
	case strings.HasPrefix(kind, "uint") && tooBig, strings.HasPrefix(kind, "int") && tooBig:
		return "a smaller number"
	case strings.HasPrefix(kind, "uint"):
		return "a whole number of 0 or more"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "duration":
		return "a duration such as 30s, 5m or 1h30m"
	case kind == "bool":
		return "true or false"
	}
	return ""
}
