package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

// tokenAccess is how commands reach persistent tokens: in the hub's Kubernetes, or at the hub, which gives users their own without a right.
type tokenAccess struct {
	connection
	systemNamespace string
	own             bool
}

func (a *tokenAccess) addFlags(flags *pflag.FlagSet) {
	a.connection.addFlags(flags)
	flags.StringVar(&a.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "the hub's --system-namespace")
}

// list lists all tokens, or those of the user.
func (a *tokenAccess) list(ctx context.Context, c client.Reader) (*managementv3.TokenList, error) {
	tokens := &managementv3.TokenList{}
	if !a.own {
		err := c.List(ctx, tokens)
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing tokens: %w; --own lists yours without that right", err)
		}
		if err != nil {
			return nil, fmt.Errorf("listing tokens: %w", err)
		}
		return tokens, nil
	}
	hub, err := a.gateway(ctx, c)
	if err != nil {
		return nil, err
	}
	raw, err := answerOf(hub.Get().AbsPath(usertokens.Path).Do(ctx))
	if err == nil {
		err = json.Unmarshal(raw, tokens)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the hub for your tokens: %w", err)
	}
	return tokens, nil
}

// revokeOwn has the hub revoke a token of the user.
func (a *tokenAccess) revokeOwn(ctx context.Context, c client.Reader, name string) error {
	hub, err := a.gateway(ctx, c)
	if err != nil {
		return err
	}
	_, err = answerOf(hub.Delete().AbsPath(usertokens.Path, name).Do(ctx))
	return err
}

// gateway is a client for the gateway of the hub, with the credential of the kubeconfig.
func (a *tokenAccess) gateway(ctx context.Context, c client.Reader) (*rest.RESTClient, error) {
	hub, _, err := readSettings(ctx, c, a.systemNamespace)
	if err != nil {
		return nil, err
	}
	config, _, err := credential{kubeconfig: a.path()}.load()
	if err != nil {
		return nil, err
	}
	return gatewayClient(gatewayConfig(config, hub.ServerURL, hub.CACerts))
}
