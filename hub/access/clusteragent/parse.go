package clusteragent

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Parse returns what a manifest was made with that only the hub can make: the registration token, and the hub's public keys where it has an
// authorized cluster endpoint. Either is empty where it is not there.
func Parse(manifest []byte) (token string, publicKeys []byte) {
	for _, document := range strings.Split(string(manifest), "---\n") {
		var secret corev1.Secret
		if yaml.Unmarshal([]byte(document), &secret) == nil && secret.Kind == "Secret" && strings.HasPrefix(secret.Name, credentialPrefix) {
			token = string(secret.Data["token"])
		}
		var keys corev1.ConfigMap
		if yaml.Unmarshal([]byte(document), &keys) == nil && keys.Kind == "ConfigMap" && keys.Name == AuthEndpointName {
			publicKeys = []byte(keys.Data[keysFile])
		}
	}
	return token, publicKeys
}
