package embedded

import (
	"context"
	"fmt"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	generic "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
)

// hookRetryDelay is how long a hook that has failed waits for its next attempt.
const hookRetryDelay = time.Second

// retriedHook is the name of the hook that creates the roles of RBAC.
const retriedHook = "rbac/bootstrap-roles-retried"

// replaceRolesHook takes out upstream's post-start hook that creates the roles of RBAC and ends the whole process if that takes longer
// than 30 seconds, as it does on a busy machine. It returns the hook to run instead, which has no limit.
func replaceRolesHook(config *generic.Config) (genericapiserver.PostStartHookFunc, error) {
	name, hook, err := rbacrest.RESTStorageProvider{}.PostStartHook()
	if err != nil {
		return nil, fmt.Errorf("making the hook %s: %w", name, err)
	}
	config.ControlPlane.Generic.DisabledPostStartHooks.Insert(name)
	return func(ctx genericapiserver.PostStartHookContext) error {
		retryHook(ctx, func() error { return hook(ctx) })
		return nil
	}, nil
}

// retryHook runs hook until it succeeds or the server is stopped. That the hook has not succeeded yet is part of /readyz.
func retryHook(ctx context.Context, hook func() error) {
	for hook() != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(hookRetryDelay):
		}
	}
}
