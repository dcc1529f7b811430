package main

import (
	"crypto"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/packaging/images/signature"
)

// newSignBlob signs files of a release that are no images.
func newSignBlob() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "sign-blob FILE",
		Short: "Sign a file with a key",
		Long: `Writes the signature of FILE to FILE.sig, in the format of cosign sign-blob. The same key and
file give the same signature. COSIGN_PASSWORD is the password of the key. To verify it:

  cosign verify-blob --key cosign.pub --signature FILE.sig --insecure-ignore-tlog=true FILE`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return signBlob(args[0], key, os.Getenv("COSIGN_PASSWORD"), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "private key of cosign generate-key-pair, or in PEM")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func signBlob(file, keyFile, password string, stdout io.Writer) error {
	key, err := readKey(keyFile, password)
	if err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	made, err := signature.SignBlob(key, content)
	if err != nil {
		return fmt.Errorf("signing %s: %w", file, err)
	}
	if err := os.WriteFile(file+".sig", []byte(made+"\n"), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, file+".sig")
	return err
}

// readKey returns nil without a file.
func readKey(file, password string) (crypto.Signer, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := signature.ParseKey(raw, []byte(password))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}
