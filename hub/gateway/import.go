package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/clusteragent"
	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/settings"
)

const (
	importPath   = "/v3/import/"
	importSuffix = ".yaml"
	// importReplicas is how many agents an imported cluster gets; where it has one Node only, both run there.
	importReplicas = 2
)

// serveImport answers with the manifest of the cluster-agent for a cluster that was made elsewhere. Token and cluster are in the path, since
// "kubectl apply -f" sends no header; so nothing may log the path.
func (s *Server) serveImport(w http.ResponseWriter, r *http.Request) {
	manifest, err := s.importManifest(r)
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) && refused.code == http.StatusUnauthorized {
			s.failures.Take(ratelimit.ClientKey(r))
		}
		s.writePlain(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(manifest)
}

func (s *Server) importManifest(r *http.Request) ([]byte, error) {
	token, name, ok := parseImport(r.PathValue("file"))
	if err := s.mayRegister(r, token, s.joins.recognizes(token)); err != nil {
		return nil, err
	}
	if !ok {
		return nil, refuse(http.StatusNotFound, "the path must be %s<registration token>_<management cluster>%s", importPath, importSuffix)
	}
	if !s.sources.synced() {
		return nil, errStarting
	}
	cluster, err := s.joins.importedCluster(r.Context(), token, name)
	if err != nil {
		return nil, err
	}
	manifest, err := clusteragent.Manifest(importInput(s.opts.Settings, cluster, name, token))
	if err != nil {
		return nil, err
	}
	s.log.Info("Manifest of the cluster-agent was handed out", "Cluster", client.ObjectKeyFromObject(cluster), "client", ratelimit.ClientAddress(r))
	return manifest, nil
}

// parseImport takes "<token>_<cluster>.yaml" apart. Names of clusters have no underscore, whatever a token may hold.
func parseImport(file string) (token, cluster string, ok bool) {
	name, ok := strings.CutSuffix(file, importSuffix)
	at := strings.LastIndexByte(name, '_')
	if !ok || at < 1 || at > maxTokenLength || at == len(name)-1 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

// importedCluster returns the Cluster to import that a token is for.
func (g *registrar) importedCluster(ctx context.Context, token, name string) (*provisioningv1.Cluster, error) {
	found, err := g.tokens.find(ctx, token, managementv3.AgentsPurpose)
	if err != nil {
		return nil, err
	}
	if found.Spec.ClusterName != name {
		return nil, errUnknownToken
	}
	cluster, err := g.clusterOf(ctx, found)
	if err != nil {
		return nil, err
	}
	if cluster.Spec.RKEConfig != nil {
		return nil, refuse(http.StatusConflict, "the cluster %s gets its cluster-agent with the plans of its machines; nothing has to be applied by hand", client.ObjectKeyFromObject(cluster))
	}
	return cluster, nil
}

func importInput(hub settings.Settings, cluster *provisioningv1.Cluster, name, token string) clusteragent.Input {
	return clusteragent.Input{
		ServerURL: hub.ServerURL, CACerts: hub.CACerts, Cluster: name, Token: token, Image: hub.AgentImage(),
		Env: cluster.Spec.AgentEnvVars, Customization: cluster.Spec.ClusterAgentDeploymentCustomization, Replicas: importReplicas,
	}
}

// loggedPath is the path of a request as it may be logged.
func loggedPath(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, importPath) {
		return importPath + "..."
	}
	return r.URL.Path
}
