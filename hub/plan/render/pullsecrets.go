package render

import "github.com/drover-dev/drover/hub/util/dockerconfig"

// addPullCredentials adds the hub's credentials for the system default registry to the configuration of the cluster, where the cluster
// takes its images from that registry and has no credentials for it, only a certificate authority perhaps. The first pull Secret that has
// credentials for the registry counts.
func (b *builder) addPullCredentials(configs map[string]registryConfig) {
	registry := b.Cluster.Settings.SystemDefaultRegistry
	if registry == "" || b.systemRegistry() != registry {
		return
	}
	host := dockerconfig.Host(registry)
	config := configs[host]
	if config.Auth != nil {
		return
	}
	for _, secret := range b.Cluster.PullSecrets {
		if auth, ok := dockerAuth(secret.Data[".dockerconfigjson"], registry); ok && auth != (registryAuth{}) {
			config.Auth = &auth
			configs[host] = config
			return
		}
	}
	if len(b.Cluster.Settings.PullSecrets) > 0 {
		b.problems.warn("system-default-registry",
			"none of the hub's pull Secrets (--system-default-registry-pull-secrets) has credentials for %s", registry)
	}
}
