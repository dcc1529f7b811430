package registration

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/response"
	"github.com/drover-dev/drover/plans"
)

const (
	// fieldHeader names what is asked for of a cluster; it may be sent several times.
	fieldHeader  = headerPrefix + "Field"
	versionField = "kubernetesversion"
	// configFile is the end of the path of the distribution's configuration in a plan.
	configFile = "/config.yaml.d/50-rancher.yaml"
)

// Config returns the distribution's configuration in the plan of a machine that has proven its identity, as JSON. There are secrets of the
// cluster in it. A machine that has not registered is 404.
func (g *Registrar) Config(ctx context.Context, req Request) ([]byte, error) {
	bootstrap, err := g.identify(ctx, req)
	if err != nil {
		return nil, err
	}
	name := types.NamespacedName{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	secret, _ := g.Secrets.Plans.Get(name)
	if secret == nil || len(secret.Data[plans.KeyPlan]) == 0 {
		return nil, response.Retry(response.DefaultRetry, "waiting for the hub to create a plan for this machine")
	}
	plan, err := plans.Decode(secret.Data[plans.KeyPlan])
	if err != nil {
		return nil, fmt.Errorf("decoding the plan in Secret %s: %w", name, err)
	}
	for _, file := range plan.Files {
		if strings.HasSuffix(file.Path, configFile) {
			content, err := base64.StdEncoding.DecodeString(file.Content)
			if err != nil {
				return nil, fmt.Errorf("decoding %s in the plan of Secret %s", file.Path, name) // the cause could quote it
			}
			return content, nil
		}
	}
	return nil, response.Retry(response.DefaultRetry, "the plan of this machine does not configure the distribution yet")
}

// identify returns the RKEBootstrap of a machine that has registered and proves its identity.
func (g *Registrar) identify(ctx context.Context, req Request) (*rkev1.RKEBootstrap, error) {
	found, err := g.resolve(ctx, req)
	if err != nil || found.proven {
		return found.bootstrap, err
	}
	registration, err := parseRegistration(req.Headers)
	if err != nil {
		return nil, err
	}
	if found.token == nil {
		if !proves(found.bootstrap, registration.SecretHash) {
			return nil, errUnproven
		}
		return found.bootstrap, nil
	}
	cluster, err := g.clusterOf(ctx, found.token)
	if err != nil {
		return nil, err
	}
	bootstrap, err := g.knownMachine(ctx, cluster, registration)
	if err == nil && bootstrap == nil {
		err = response.Errorf(http.StatusNotFound, "this machine is not registered; /v3/connect/agent registers it")
	}
	return bootstrap, err
}

// ClusterInfo returns what a machine may know of its cluster before it has joined: {"kubernetesversion": "..."}. Any valid token is
// enough. The header X-Cattle-Field may name that one field.
func (g *Registrar) ClusterInfo(ctx context.Context, req Request) (map[string]string, error) {
	for _, field := range req.Headers.Values(fieldHeader) {
		if !strings.EqualFold(strings.TrimSpace(field), versionField) {
			return nil, headerError("Field", "the only field is %s", versionField)
		}
	}
	cluster, err := g.clusterFor(ctx, req)
	if err != nil {
		return nil, err
	}
	owner := &clusterv1.Cluster{}
	var controlPlane *rkev1.RKEControlPlane
	err = g.Client.Get(ctx, cluster, owner)
	if err == nil {
		controlPlane, _, err = ownership.ControlPlane(ctx, g.Client, owner)
	}
	if apierrors.IsNotFound(err) || err == nil && controlPlane == nil {
		return nil, response.Retry(response.DefaultRetry, "waiting for the control plane of the Cluster %s", cluster)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the control plane of the Cluster %s: %w", cluster, err)
	}
	return map[string]string{versionField: controlPlane.Spec.DesiredVersion()}, nil
}

// clusterFor names the cluster that a machine is to join.
func (g *Registrar) clusterFor(ctx context.Context, req Request) (types.NamespacedName, error) {
	found, err := g.resolve(ctx, req)
	if err != nil {
		return types.NamespacedName{}, err
	}
	if found.token == nil {
		return types.NamespacedName{Namespace: found.bootstrap.Namespace, Name: found.bootstrap.Spec.ClusterName}, nil
	}
	cluster, err := g.clusterOf(ctx, found.token)
	if err != nil {
		return types.NamespacedName{}, err
	}
	return client.ObjectKeyFromObject(cluster), nil
}
