package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/drover-dev/drover/hub/identity/usertokens"
)

// tokenOptions are the flags of "hub token".
type tokenOptions struct {
	credential
	server, cluster, authorities string
}

// newToken is kubectl's plugin; "hub kubeconfig" writes it into kubeconfigs.
func newToken() *cobra.Command {
	o := &tokenOptions{}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Get a short-lived token (kubectl exec plugin)",
		Long: `Get a short-lived token for a cluster and print it as an ExecCredential of client.authentication.k8s.io/v1. Kubeconfigs of
"hub kubeconfig" run this command.

The credential in --kubeconfig authenticates the user: a client certificate or a token of the hub's Kubernetes API. It is sent to the hub
only. The token is valid for some minutes and is cached, readable for the user only, until shortly before it expires.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := o.token(cmd.Context(), time.Now())
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(execCredential(token))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", "", "https URL of the hub")
	flags.StringVar(&o.cluster, "cluster", "", "cluster: the name of its management Cluster, or <namespace>/<cluster>")
	flags.StringVar(&o.authorities, "certificate-authority-data", "",
		"base64 of the PEM certificates to trust for --server (default: the certificates of this machine)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig with the user's credential for the hub")
	flags.StringVar(&o.context, "context", "", "context of that kubeconfig (default: the current context)")
	return cmd
}

func (o *tokenOptions) token(ctx context.Context, now time.Time) (*issuedToken, error) {
	switch {
	case !strings.HasPrefix(o.server, "https://"):
		return nil, fmt.Errorf("--server: must be the https URL of a hub, got %q", o.server)
	case o.cluster == "":
		return nil, errors.New("--cluster is required: the name of a management Cluster, or <namespace>/<cluster>")
	case o.kubeconfig == "":
		return nil, errors.New("--kubeconfig is required: the file with the user's credential for the hub")
	}
	authorities, err := base64.StdEncoding.DecodeString(o.authorities)
	if err != nil {
		return nil, errors.New("--certificate-authority-data: must be base64")
	}
	config, who, err := o.credential.load()
	if err != nil {
		return nil, err
	}
	cache := newTokenCache(o.server, string(authorities), o.cluster, who)
	if token := cache.read(now); token != nil {
		return token, nil
	}
	token, err := requestToken(ctx, config, o.server, authorities, tokenRequest{
		Cluster: o.cluster, TTLSeconds: int64(usertokens.DefaultTTL / time.Second),
	})
	if err != nil {
		return nil, err
	}
	// The end by the clock of this machine, which decides here and in kubectl when a new token is needed. That of the hub may differ by more
	// than a token is valid for.
	token.ExpiresAt = now.Add(usertokens.DefaultTTL).UTC()
	// Without a place to keep it in, the next command asks again.
	_ = cache.write(token)
	return token, nil
}

func execCredential(token *issuedToken) *clientauthentication.ExecCredential {
	return &clientauthentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthentication.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthentication.ExecCredentialStatus{
			Token: token.Token,
			// kubectl asks again when it is over; a command that runs across the end does not notice.
			ExpirationTimestamp: &metav1.Time{Time: token.ExpiresAt.Add(-freshFor)},
		},
	}
}

// programPath is how kubeconfigs call this program.
func programPath() string {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "hub"
	}
	return path
}
