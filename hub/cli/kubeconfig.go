package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

// kubeconfigOptions are the flags of "hub kubeconfig".
type kubeconfigOptions struct {
	connection
	systemNamespace string

	output string
	merge  bool

	static      bool
	ttl         time.Duration
	description string

	// issued is the name of the token of --static, once there is one.
	issued string
}

func newKubeconfig() *cobra.Command {
	o := &kubeconfigOptions{}
	cmd := &cobra.Command{
		Use:   "kubeconfig <namespace>/<cluster>",
		Short: "Create a kubeconfig for a cluster",
		Long: `Create a kubeconfig that connects to a cluster through the hub, even if the cluster accepts no incoming connections.

The kubeconfig contains no secret: kubectl runs "hub token" to get a token that is valid for some minutes, and "hub token" authenticates
to the hub with the credential in --kubeconfig. Do not move this program or that file. With --static the kubeconfig contains a token
that is valid for --ttl instead; "hub tokens" lists and revokes such tokens.

If the cluster has an authorized cluster endpoint, the kubeconfig gets further contexts that connect to the control plane without the hub.
These work with short-lived tokens only, so --static adds none.`,
		Example: "  hub kubeconfig fleet-default/demo > demo.kubeconfig\n  hub kubeconfig fleet-default/demo --output ~/.kube/config --merge\n" +
			"  hub kubeconfig fleet-default/demo --static --ttl 24h --description \"pipeline of team blue\" --output ci.kubeconfig",
		Args: oneCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return err
			}
			key, err := clusterKey(args[0])
			if err != nil {
				return err
			}
			return explain(o.run(cmd.Context(), key, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *kubeconfigOptions) addFlags(flags *pflag.FlagSet) {
	o.connection.addFlags(flags)
	flags.StringVar(&o.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "the hub's --system-namespace")
	flags.StringVarP(&o.output, "output", "o", "", "file to write instead of the standard output, readable for its owner only")
	flags.BoolVar(&o.merge, "merge", false, "add to what --output holds already, and leave its current context")
	flags.BoolVar(&o.static, "static", false, "put a token into the kubeconfig, for programs that cannot call a plugin")
	flags.DurationVar(&o.ttl, "ttl", 24*time.Hour,
		fmt.Sprintf("how long the token of --static is good, up to %s", usertokens.MaxPersistentTTL))
	flags.StringVar(&o.description, "description", "", "what the token of --static is for")
}

func (o *kubeconfigOptions) check(flags *pflag.FlagSet) error {
	switch {
	case o.merge && o.output == "":
		return errors.New("--merge needs --output: the file to add to")
	case o.output != "" && checkRegular(o.output) != nil:
		return fmt.Errorf("--output %s: it is not a regular file; without --output, the kubeconfig is written to the standard output", o.output)
	case !o.static && (flags.Changed("ttl") || flags.Changed("description")):
		return errors.New("--ttl and --description are about the token of --static; give that, too")
	case o.ttl < time.Minute || o.ttl > usertokens.MaxPersistentTTL:
		return fmt.Errorf("--ttl %s is not between 1m and %s", o.ttl, usertokens.MaxPersistentTTL)
	}
	return nil
}

func (o *kubeconfigOptions) run(ctx context.Context, key client.ObjectKey, stdout, stderr io.Writer) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	hub, _, err := readSettings(ctx, c, o.systemNamespace)
	if err != nil {
		return err
	}
	management, err := managementName(ctx, c, key)
	if err != nil {
		return err
	}
	user, err := o.user(ctx, hub, management)
	if err != nil {
		return err
	}
	config := proxied(key, hub, management, user)
	if !o.static {
		if err := addDirect(ctx, c, key, config); err != nil {
			fmt.Fprintln(stderr, "hub: the contexts that lead past the hub were left out:", oneLine(explain(err)))
		}
	}
	return o.write(config, stdout, stderr)
}

// user is how kubectl gets a token, or the token.
func (o *kubeconfigOptions) user(ctx context.Context, hub settings.Settings, management string) (*clientcmdapi.AuthInfo, error) {
	path, err := filepath.Abs(o.path())
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", path, err)
	}
	from := credential{kubeconfig: path}
	config, _, err := from.load()
	if err != nil {
		return nil, err
	}
	if o.static {
		token, err := requestToken(ctx, config, hub.ServerURL, hub.CACerts, tokenRequest{
			Cluster: management, Persistent: true, TTLSeconds: int64(o.ttl / time.Second), Description: o.description,
		})
		if err != nil {
			return nil, err
		}
		o.issued = token.Name
		return &clientcmdapi.AuthInfo{Token: token.Token}, nil
	}
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	args := []string{"token", "--server", hub.ServerURL, "--cluster", management, "--kubeconfig", path, "--context", raw.CurrentContext}
	if len(hub.CACerts) > 0 {
		args = append(args, "--certificate-authority-data", base64.StdEncoding.EncodeToString(hub.CACerts))
	}
	return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthentication.SchemeGroupVersion.String(), Command: programPath(), Args: args,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		InstallHint: "This kubeconfig needs the program \"hub\" of Drover at the path above. If it is elsewhere, create the kubeconfig " +
			"again with \"hub kubeconfig\".",
	}}, nil
}

// proxied is a kubeconfig with the context that leads through the hub.
func proxied(key client.ObjectKey, hub settings.Settings, management string, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	name := key.String()
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: hub.ServerURL + "/k8s/clusters/" + management, CertificateAuthorityData: hub.CACerts}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config
}

// names of contexts, the proxied one first.
func names(config *clientcmdapi.Config) string {
	list := []string{config.CurrentContext}
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if name != config.CurrentContext {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}
