package registration

import (
	"context"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

// serverTokenHash is the header with the hex SHA-256 of the token with which a server of k3s or RKE2 runs on the machine. Scripts send it
// for a machine that has registered before. It is not part of the machine request.
const serverTokenHash = "server-token-hash"

// checkServerToken refuses a new machine that runs a server of another cluster, such as one of the same name that was deleted. The server
// would be restarted with the token of this cluster and its own data, which is encrypted with the other token, and would not start. A
// machine whose Machine alone was deleted runs with a token of the cluster, and so does a server of a lost cluster whose tokens were put
// into the Secret. Nothing is refused before the Secret exists.
func (g *Registrar) checkServerToken(ctx context.Context, cluster *provisioningv1.Cluster, r *registration) error {
	if r.ServerTokenHash == "" {
		return nil
	}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: rkev1.ClusterStateSecretName(cluster.Name)}
	state := &corev1.Secret{}
	if err := g.get(ctx, key, state, nil); err != nil || len(state.Data) == 0 {
		return err
	}
	for _, token := range state.Data {
		if sameHash(tokens.Hash(withoutAuthority(string(token))), r.ServerTokenHash) {
			return nil
		}
	}
	return response.Errorf(http.StatusConflict, "this machine runs a server of another cluster, such as one of the same name that was "+
		"deleted: its token is not in the Secret %s. To use it for %s, run `system-agent leave --purge-distribution` on it, which deletes "+
		"the data of the other cluster, and then this command again", key, client.ObjectKeyFromObject(cluster))
}

// withoutAuthority returns the secret part of a token in the form K10<hash of the authority>::<user>:<secret>.
func withoutAuthority(token string) string { return token[strings.LastIndex(token, ":")+1:] }
