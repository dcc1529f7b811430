package embedded

import (
	"crypto/rand"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
)

// adminName is the user of admin.kubeconfig and of the hub itself.
const adminName = "drover-hub-admin"

// withToken returns a configuration for the hub's own requests: a token that only this process knows, in place of the client certificate,
// whose chain the API server would verify with each request.
func withToken(admin *rest.Config) *rest.Config {
	config := rest.CopyConfig(admin)
	config.CertFile, config.KeyFile = "", ""
	config.BearerToken = rand.Text() + rand.Text()
	return config
}

// acceptToken makes the API server take a token for one of the administrator. Other credentials are judged as before.
func acceptToken(config *controlplane.Config, token string) {
	tokens := map[string]*user.DefaultInfo{
		token: {Name: adminName, Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}},
	}
	for _, server := range []*genericapiserver.Config{
		config.ControlPlane.Generic, &config.APIExtensions.GenericConfig.Config, &config.Aggregator.GenericConfig.Config,
	} {
		known := authenticatorfactory.NewFromTokens(tokens, server.Authentication.APIAudiences)
		server.Authentication.Authenticator = union.New(known, server.Authentication.Authenticator)
	}
}
