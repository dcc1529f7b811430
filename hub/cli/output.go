package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// output is the form of an answer.
type output struct{ form string }

func (o *output) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.form, "output", "o", "table", "form of the answer: table or json")
}

func (o *output) check() error {
	if o.form != "table" && o.form != "json" {
		return fmt.Errorf("--output %q is neither table nor json", o.form)
	}
	return nil
}

// print writes an answer as JSON, or as table writes it.
func (o *output) print(out io.Writer, answer any, table func(io.Writer) error) error {
	if o.form == "table" {
		return table(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}

// selector is a connection, and what its flags and the arguments of a command select.
type selector interface {
	addFlags(flags *pflag.FlagSet)
	selection(args []string) (client.ObjectKey, error)
	client() (client.WithWatch, error)
}

// listed completes a command that lists what belongs to one cluster, to a namespace or to all.
func listed[L any](cmd *cobra.Command, where selector, list func(context.Context, client.Reader, client.ObjectKey) ([]L, error),
	table func(io.Writer, []L, time.Time) error,
) *cobra.Command {
	var out output
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		of, err := where.selection(args)
		if err != nil {
			return err
		}
		c, err := where.client()
		if err != nil {
			return err
		}
		lines, err := list(cmd.Context(), c, of)
		if err != nil {
			return explain(err)
		}
		return out.print(cmd.OutOrStdout(), lines, func(w io.Writer) error { return table(w, lines, time.Now()) })
	}
	where.addFlags(cmd.Flags())
	out.addFlags(cmd.Flags())
	return cmd
}
