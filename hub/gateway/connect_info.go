package gateway

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

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/plans"
)

const (
	// fieldHeader may be sent several times, to name what is asked for of a cluster.
	fieldHeader  = headerPrefix + "Field"
	versionField = "kubernetesversion"
	// configFile ends the path of the distribution's configuration in a plan.
	configFile = "/config.yaml.d/50-rancher.yaml"
)

// serveConfig answers with the distribution's configuration in the machine's own plan. There are secrets of the cluster in it.
func (s *Server) serveConfig(w http.ResponseWriter, r *http.Request) {
	config, err := admit(s, w, r, s.joins.config)
	if err != nil {
		s.writePlain(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(config)
}

// serveClusterInfo answers with what a machine may know of its cluster before it is part of it.
func (s *Server) serveClusterInfo(w http.ResponseWriter, r *http.Request) {
	info, err := admit(s, w, r, s.joins.clusterInfo)
	if err != nil {
		s.writePlain(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, info)
}

// identify returns the RKEBootstrap of a machine that is known and has proven that it is that machine.
func (g *registrar) identify(ctx context.Context, token string, headers http.Header) (*rkev1.RKEBootstrap, error) {
	if token == "" {
		return g.stored(ctx, headers)
	}
	registration, err := parseRegistration(headers)
	if err != nil {
		return nil, err
	}
	made, err := g.bootstrapSecret(token)
	if err != nil {
		return nil, err
	}
	if made != nil {
		bootstrap, err := g.bootstrapOf(ctx, made)
		if err == nil && !proves(bootstrap, registration.SecretHash) {
			err = errUnproven
		}
		return bootstrap, err
	}
	registrationToken, err := g.tokens.find(ctx, token, managementv3.MachinesPurpose)
	if err != nil {
		return nil, err
	}
	cluster, err := g.clusterOf(ctx, registrationToken)
	if err != nil {
		return nil, err
	}
	bootstrap, err := g.knownMachine(ctx, cluster, registration)
	if err == nil && bootstrap == nil {
		err = refuse(http.StatusNotFound, "this machine is not registered; /v3/connect/agent registers it")
	}
	return bootstrap, err
}

func (g *registrar) config(ctx context.Context, token string, headers http.Header) ([]byte, error) {
	bootstrap, err := g.identify(ctx, token, headers)
	if err != nil {
		return nil, err
	}
	name := types.NamespacedName{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	secret, _ := g.sources.store.get(name)
	if secret == nil || len(secret.Data[plans.KeyPlan]) == 0 {
		return nil, later(comeAgain, "waiting for the hub to make a plan for this machine")
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
	return nil, later(comeAgain, "the plan of this machine does not configure the distribution yet")
}

func (g *registrar) clusterInfo(ctx context.Context, token string, headers http.Header) (map[string]string, error) {
	for _, field := range headers.Values(fieldHeader) {
		if !strings.EqualFold(strings.TrimSpace(field), versionField) {
			return nil, headerError("Field", "the only field there is is %s", versionField)
		}
	}
	cluster, err := g.clusterByToken(ctx, token, headers)
	if err != nil {
		return nil, err
	}
	owner := &clusterv1.Cluster{}
	var controlPlane *rkev1.RKEControlPlane
	err = g.client.Get(ctx, cluster, owner)
	if err == nil {
		controlPlane, _, err = ownership.ControlPlane(ctx, g.client, owner)
	}
	if apierrors.IsNotFound(err) || err == nil && controlPlane == nil {
		return nil, later(comeAgain, "waiting for the control plane of the Cluster %s", cluster)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the control plane of the Cluster %s: %w", cluster, err)
	}
	return map[string]string{versionField: controlPlane.Spec.KubernetesVersion}, nil
}

// clusterByToken names the cluster that a machine is to join. A token is enough to ask.
func (g *registrar) clusterByToken(ctx context.Context, token string, headers http.Header) (types.NamespacedName, error) {
	none := types.NamespacedName{}
	made, err := g.bootstrapSecret(token)
	if err != nil {
		return none, err
	}
	var bootstrap *rkev1.RKEBootstrap
	switch {
	case token == "":
		bootstrap, err = g.stored(ctx, headers)
	case made != nil:
		bootstrap, err = g.bootstrapOf(ctx, made)
	default:
		registrationToken, err := g.tokens.find(ctx, token, managementv3.MachinesPurpose)
		if err != nil {
			return none, err
		}
		cluster, err := g.clusterOf(ctx, registrationToken)
		if err != nil {
			return none, err
		}
		return client.ObjectKeyFromObject(cluster), nil
	}
	if err != nil {
		return none, err
	}
	return types.NamespacedName{Namespace: bootstrap.Namespace, Name: bootstrap.Spec.ClusterName}, nil
}
