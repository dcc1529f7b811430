package render

import "github.com/drover-dev/drover/hub/util/dockerconfig"

// addPullCredentials adds the hub's credentials for the system default registry to those of the cluster, where the cluster takes its
// images from that registry and says nothing of it itself. The first pull Secret that has credentials for the registry counts.
func (b *builder) addPullCredentials(configs map[string]registryConfig) {
	registry := b.Cluster.Settings.SystemDefaultRegistry
	if registry == "" || b.systemRegistry() != registry {
		return
	}
	host := dockerconfig.Host(registry)
	if _, own := configs[host]; own {
		return
	}
	for _, secret := range b.Cluster.PullSecrets {
		if auth, ok := dockerAuth(secret.Data[".dockerconfigjson"], registry); ok && auth != (registryAuth{}) {
			configs[host] = registryConfig{Auth: &auth}
			return
		}
	}
	if len(b.Cluster.Settings.PullSecrets) > 0 {
		b.problems.warn("system-default-registry",
			"none of the hub's pull Secrets (--system-default-registry-pull-secrets) has credentials for %s", registry)
	}
}
