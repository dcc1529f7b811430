package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// encryptionTimeout is how long the server may take: with rotate-keys it writes all Secrets before it answers.
const encryptionTimeout = 3 * time.Minute

func secretsEncrypt() *cobra.Command {
	r := &remote{}
	c := &cobra.Command{Use: "secrets-encrypt", Short: "Manage the encryption of Secrets"}
	r.add(c, "server", "token")
	status := &cobra.Command{Use: "status", Short: "Show keys and stage", Args: cobra.NoArgs}
	format := status.Flags().StringP("output", "o", "", "text or json")
	status.RunE = func(c *cobra.Command, _ []string) error {
		server, err := r.dial(c.Context(), encryptionTimeout)
		if err != nil {
			return err
		}
		var state supervisor.EncryptionState
		if err := server.Call(c.Context(), http.MethodGet, supervisor.EncryptionStatusPath, nil, &state); err != nil {
			return fmt.Errorf("see server log for details: %w", err)
		}
		return printEncryption(os.Stdout, state, *format)
	}
	on, off := true, false
	c.AddCommand(status,
		r.encryption("enable", "Encrypt Secrets again", "secrets-encryption enabled", supervisor.EncryptionRequest{Enable: &on}),
		r.encryption("disable", "Store Secrets in plain", "secrets-encryption disabled", supervisor.EncryptionRequest{Enable: &off}),
		r.stage("prepare", "Add a key", "prepare completed successfully", supervisor.StagePrepare),
		r.stage("rotate", "Let the added key encrypt", "rotate completed successfully", supervisor.StageRotate),
		r.stage("reencrypt", "Write all Secrets with the new key", "reencryption started", supervisor.StageReencrypt),
		r.stage("rotate-keys", "Replace the key", "keys rotated, reencryption started", supervisor.StageRotateKeys))
	return c
}

func (r *remote) stage(name, short, done, stage string) *cobra.Command {
	return r.encryption(name, short, done, supervisor.EncryptionRequest{Stage: &stage})
}

// encryption is a command that sends a request and prints a line if the server has done it.
func (r *remote) encryption(name, short, done string, req supervisor.EncryptionRequest) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	if req.Stage != nil && name != "rotate-keys" {
		c.Flags().BoolVarP(&req.Force, "force", "f", false, "Go on although another stage is due")
	}
	if name == "reencrypt" {
		c.Flags().BoolVar(&req.Skip, "skip", false, "Keep the old key")
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		server, err := r.dial(c.Context(), encryptionTimeout)
		if err != nil {
			return err
		}
		if err := server.Call(c.Context(), http.MethodPut, supervisor.EncryptionConfigPath, req, nil); err != nil {
			return fmt.Errorf("see server log for details: %w", err)
		}
		fmt.Println(done)
		return nil
	}
	return c
}

func printEncryption(to io.Writer, state supervisor.EncryptionState, format string) error {
	switch strings.ToLower(format) {
	case "json":
		raw, err := json.MarshalIndent(state, "", "\t")
		if err == nil {
			_, err = fmt.Fprintln(to, string(raw))
		}
		return err
	case "", "text":
	default:
		return fmt.Errorf("invalid output format %s", format)
	}
	if state.Enable == nil {
		_, err := fmt.Fprintln(to, "Encryption Status: Disabled, no configuration file found")
		return err
	}
	var out bytes.Buffer
	status, hashes := "Disabled", "All hashes match"
	if *state.Enable {
		status = "Enabled"
	}
	if !state.HashMatch {
		hashes = state.HashError
	}
	fmt.Fprintf(&out, "Encryption Status: %s\nCurrent Rotation Stage: %s\nServer Encryption Hashes: %s\n\n", status, state.Stage, hashes)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "Active\tKey Type\tName\n------\t--------\t----\n")
	if kind, name, ok := strings.Cut(state.ActiveKey, " "); ok {
		fmt.Fprintf(w, " *\t%s\t%s\n", kind, name)
	}
	for _, k := range state.InactiveKeys {
		kind, name, _ := strings.Cut(k, " ")
		fmt.Fprintf(w, "\t%s\t%s\n", kind, name)
	}
	_ = w.Flush() // into memory
	_, err := fmt.Fprintln(to, out.String())
	return err
}
