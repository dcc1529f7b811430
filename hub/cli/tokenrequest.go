package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/util/redirect"
)

// requestTimeout bounds how long the hub may take to make a token.
const requestTimeout = 30 * time.Second

type (
	tokenRequest = usertokens.Request
	issuedToken  = usertokens.Answer
)

// credential is where the hub's Kubernetes knows the user from.
type credential struct {
	kubeconfig string
	// context is a context of the kubeconfig. Kubeconfigs that call "hub token" name it: what is current in the file may be another one at
	// that time, of somebody who is no business of the hub's.
	context string
}

// load returns the credential, and a hash that tells it from others.
func (c credential) load() (*rest.Config, string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", c.kubeconfig, err)
	}
	name := c.context
	if name == "" {
		name = raw.CurrentContext
	}
	if raw.Contexts[name] == nil {
		return nil, "", fmt.Errorf("%s has no context %q; create the kubeconfig again with \"hub kubeconfig\"", c.kubeconfig, name)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", c.kubeconfig, err)
	}
	if as := config.Impersonate.UserName; as != "" {
		return nil, "", fmt.Errorf("context %q of %s acts as %s; the hub gives tokens only for who somebody is: choose a context without \"as\"",
			name, c.kubeconfig, as)
	}
	who, err := json.Marshal(raw.AuthInfos[raw.Contexts[name].AuthInfo])
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", c.kubeconfig, err)
	}
	sum := sha256.Sum256(who)
	return config, hex.EncodeToString(sum[:]), nil
}

// gatewayConfig reaches the gateway of the hub. Of config nothing but the credential is used.
func gatewayConfig(config *rest.Config, server string, authorities []byte) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host, config.APIPath, config.Proxy = server, "", nil
	config.CAFile, config.CAData, config.ServerName, config.Insecure = "", authorities, "", false
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	redirect.Restrict(config)
	return config
}

// gatewayClient is a client of the gateway, with a configuration that gatewayConfig has made.
func gatewayClient(config *rest.Config) (*rest.RESTClient, error) {
	config.Timeout = requestTimeout
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the hub at %s: %w", config.Host, err)
	}
	return c, nil
}

// answerOf returns what the gateway has answered. Error, unlike Raw, says in its words why it has refused.
func answerOf(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// requestToken asks the hub for a token and proves by config who asks. The library waits and asks again where the hub says so.
func requestToken(ctx context.Context, config *rest.Config, server string, authorities []byte, request tokenRequest) (*issuedToken, error) {
	client, err := gatewayClient(gatewayConfig(config, server, authorities))
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	raw, err := answerOf(client.Post().AbsPath(usertokens.Path).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx))
	if err != nil {
		return nil, fmt.Errorf("asking the hub at %s for a token: %w", server, err)
	}
	token := &issuedToken{}
	if err := json.Unmarshal(raw, token); err != nil || token.Token == "" {
		return nil, fmt.Errorf("the hub at %s gave an answer that holds no token", server)
	}
	return token, nil
}
