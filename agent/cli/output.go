package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is how a command answers.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
	formatYAML format = "yaml"
)

func (f *format) flags(cmd *cobra.Command) {
	*f = formatText
	cmd.Flags().VarP(f, "output", "o", "how to answer: text, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// String, Set and Type implement pflag.Value.
func (f *format) String() string { return string(*f) }

// Type is what the help shows.
func (f *format) Type() string { return "format" }

// Set takes one of the names.
func (f *format) Set(text string) error {
	switch format(text) {
	case formatText, formatJSON, formatYAML:
		*f = format(text)
		return nil
	}
	return fmt.Errorf("%q is none of text, json and yaml", text)
}

// print writes value as the user wants it.
func (f *format) print(w io.Writer, value any, text func(io.Writer)) error {
	switch *f {
	case formatJSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case formatYAML:
		raw, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	}
	// Text is written at once, so that a pipe that is closed early is noticed once.
	var b strings.Builder
	text(&b)
	_, err := io.WriteString(w, b.String())
	return err
}
