package references

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// forbiddenTypes are what only the hub, Cluster API and Kubernetes themselves use.
var forbiddenTypes = map[corev1.SecretType]string{
	clusterv1.ClusterSecretType:          "it holds a key, a kubeconfig or bootstrap data of a cluster",
	corev1.SecretTypeServiceAccountToken: "it is the token of a ServiceAccount",
	corev1.SecretTypeBootstrapToken:      "it is a bootstrap token",
}

// clusterPurposes are how the names of Secrets end that belong to the cluster of the name before it, whatever their type: users bring
// authorities of their own as kubernetes.io/tls, and restore tokens as Opaque.
var clusterPurposes = []string{"-ca", "-cca", "-etcd", "-sa", "-proxy", "-kubeconfig", rkev1.ClusterStateSecretName("")}

// Forbidden says why a Secret is given to no machine, whoever names it and whatever it says of itself; empty where it may be.
func Forbidden(secret *corev1.Secret) string {
	if why, ok := forbiddenTypes[secret.Type]; ok {
		return why
	}
	if strings.HasPrefix(string(secret.Type), "rke.cattle.io/") && secret.Type != rkev1.AuthConfigSecretType {
		return "it belongs to the hub"
	}
	if secret.Labels[managementv3.RegistrationTokenLabel] == "true" {
		return "it holds a registration token"
	}
	return ""
}

// ClusterOf returns the cluster whose Secret one of this name would be, if there were such a cluster.
func ClusterOf(secret string) (cluster string, ok bool) {
	for _, purpose := range clusterPurposes {
		if cluster, ok = strings.CutSuffix(secret, purpose); ok && cluster != "" {
			return cluster, true
		}
	}
	return "", false
}

// MayHoldTokens reports whether a Secret of this name may be the one with the tokens of an RKEControlPlane, whose name is in it or, if both
// are too long together, in a hash.
func MayHoldTokens(secret string) bool {
	return strings.HasSuffix(secret, rkev1.ClusterStateSecretName("")) || len(secret) == validation.DNS1123LabelMaxLength
}
