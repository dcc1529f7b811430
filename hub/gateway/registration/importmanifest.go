package registration

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/clusteragent"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/dockerconfig"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// ImportPath is the folder of import manifests. What follows it holds a registration token, so nothing may log it.
	ImportPath   = "/v3/import/"
	importSuffix = ".yaml"
	// importReplicas is how many cluster-agents an imported cluster gets; if it has one Node only, both run there.
	importReplicas = 2
)

// ParseImport splits the file name "<registration token>_<management cluster>.yaml". Names of clusters have no underscore, tokens may
// have. It returns empty strings for any other name.
func ParseImport(file string) (token, cluster string) {
	name, ok := strings.CutSuffix(file, importSuffix)
	i := strings.LastIndexByte(name, '_')
	if !ok || i < 1 || i > tokens.MaxLength || i == len(name)-1 {
		return "", ""
	}
	return name[:i], name[i+1:]
}

// CheckImport refuses a file name that is not one of an import with 404.
func CheckImport(file string) error {
	if token, _ := ParseImport(file); token == "" {
		return response.Errorf(http.StatusNotFound, "the path must be %s<registration token>_<management cluster>%s", ImportPath, importSuffix)
	}
	return nil
}

// ImportManifest returns the manifest of the cluster-agent, YAML, for a cluster to import. The token must be for agents of that cluster.
// Token and cluster are in the file name, since "kubectl apply -f" sends no headers.
func (g *Registrar) ImportManifest(ctx context.Context, file, address string) ([]byte, error) {
	token, name := ParseImport(file)
	found, err := g.Tokens.Find(ctx, token, managementv3.AgentsPurpose)
	if err != nil {
		return nil, err
	}
	if found.Spec.ClusterName != name {
		return nil, ErrUnknownToken
	}
	// The manifest may have credentials for a registry: who finds a command that has done its part must not get them.
	if err := g.Tokens.CheckUses(ctx, found); err != nil {
		return nil, err
	}
	cluster, err := g.clusterOf(ctx, found)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(cluster)
	if cluster.Spec.RKEConfig != nil {
		return nil, response.Errorf(http.StatusConflict,
			"the cluster %s gets its cluster-agent with the plans of its machines; do not apply one by hand", key)
	}
	pullConfig, err := g.pullConfig(ctx)
	if err != nil {
		return nil, err
	}
	manifest, err := clusteragent.Manifest(clusteragent.Input{
		ServerURL: g.Settings.ServerURL, CACerts: g.Settings.CACerts, Cluster: name, Token: token, Image: g.Settings.AgentImage(),
		PullConfig: pullConfig, Env: cluster.Spec.AgentEnvVars, Customization: cluster.Spec.ClusterAgentDeploymentCustomization,
		Replicas: importReplicas,
	})
	if err == nil {
		g.Logger.Info("Import manifest of the cluster-agent served", "Cluster", key, "client", address)
	}
	return manifest, err
}

// pullConfig returns the hub's credentials for the agent's image in its system default registry: nobody has configured that registry on the
// Nodes of an imported cluster. As for machines, those of the first pull Secret that has some count.
func (g *Registrar) pullConfig(ctx context.Context) ([]byte, error) {
	if g.Settings.SystemDefaultRegistry == "" {
		return nil, nil
	}
	for _, name := range g.Settings.PullSecrets {
		key := client.ObjectKey{Namespace: g.Settings.SystemNamespace, Name: name}
		secret := &corev1.Secret{}
		if err := g.Live.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pull Secret %s: %w", key, err)
		}
		if secret.Type != corev1.SecretTypeDockerConfigJson {
			continue
		}
		if config, ok := dockerconfig.Only(secret.Data[corev1.DockerConfigJsonKey], g.Settings.AgentImage()); ok {
			return config, nil
		}
	}
	return nil, nil
}
