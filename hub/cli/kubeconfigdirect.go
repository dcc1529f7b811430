package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// managementName finds the management Cluster of a Cluster of provisioning.cattle.io, or of one that was written for Cluster API, whose
// users need no rights on the other kind.
func managementName(ctx context.Context, c client.Reader, key client.ObjectKey) (string, error) {
	cluster := &provisioningv1.Cluster{}
	err := c.Get(ctx, key, cluster)
	if err == nil {
		if name := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]; name != "" {
			return name, checkOwned(ctx, c, key, name)
		}
		return "", fmt.Errorf("the hub has not taken Cluster %s on yet; its conditions say why", key)
	}
	forbidden := apierrors.IsForbidden(err)
	if !forbidden && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	var found managementv3.ClusterList
	failed := c.List(ctx, &found, client.MatchingLabels(ownership.Labels(key)))
	switch {
	case failed == nil && len(found.Items) > 0:
		return found.Items[0].Name, nil
	case forbidden:
		return "", fmt.Errorf("reading Cluster %s: %w", key, err)
	case apierrors.IsForbidden(failed):
		return "", fmt.Errorf("there is no Cluster %s of provisioning.cattle.io; for a cluster that was written for Cluster API, you need the "+
			"right to list clusters.management.cattle.io", key)
	case failed != nil:
		return "", fmt.Errorf("looking for the management Cluster of %s: %w", key, failed)
	}
	return "", fmt.Errorf("there is no Cluster %s", key)
}

// checkOwned refuses the name of a management Cluster that was made for another Cluster than the one that it is written on. Who may not
// read management Clusters cannot check that here; the hub does whenever the name is used.
func checkOwned(ctx context.Context, c client.Reader, key client.ObjectKey, name string) error {
	_, refusal, err := ownership.ManagementCluster(ctx, c, key, name)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return explain(err)
	case refusal != nil:
		return errors.New(refusal.Message)
	}
	return nil
}

// addDirect adds a context for each way to a cluster's control plane that does not lead through the hub, where the cluster has an
// authorized endpoint: its name where it has one, otherwise each machine. A Cluster gets none to a cluster that was made for something else
// under its name.
func addDirect(ctx context.Context, c client.Reader, key client.ObjectKey, config *clientcmdapi.Config) error {
	made := &provisioningv1.Cluster{}
	err := c.Get(ctx, key, made)
	switch {
	case err == nil && !made.Spec.LocalClusterAuthEndpoint.Enabled:
		return nil // without a right to what is read below
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return err
	}
	cluster := &clusterv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		// Cluster API knows nothing of imported clusters.
		return client.IgnoreNotFound(err)
	}
	if err == nil && !ownership.OfProvisioningCluster(cluster, key.Name) {
		return nil
	}
	controlPlane := &rkev1.RKEControlPlane{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}, controlPlane); err != nil {
		return client.IgnoreNotFound(err)
	}
	endpoint := controlPlane.Spec.LocalClusterAuthEndpoint
	if !endpoint.Enabled {
		return nil
	}
	if strings.Contains(endpoint.FQDN, "/") {
		return fmt.Errorf("spec.localClusterAuthEndpoint.fqdn of %s is a URL; it takes a name, with a port other than 443 behind it, such as "+
			"api.example.com:6443", key)
	}
	authorities := []byte(endpoint.CACerts)
	if len(authorities) == 0 {
		var err error
		if authorities, err = serverCA(ctx, c, key); err != nil {
			return err
		}
	}
	if endpoint.FQDN != "" {
		host := endpoint.FQDN
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
			host = "[" + host + "]"
		}
		addContext(config, key.String()+"@"+endpoint.FQDN, "https://"+host, authorities)
		return nil
	}
	var machines clusterv1.MachineList
	err = c.List(ctx, &machines, client.InNamespace(key.Namespace), client.MatchingLabels{
		clusterv1.ClusterNameLabel: key.Name, rkev1.ControlPlaneRoleLabel: "true",
	})
	if err != nil {
		return fmt.Errorf("listing the machines of %s: %w", key, err)
	}
	port := render.APIPort(render.Cluster{
		Spec: controlPlane.Spec, Release: release.Release{Runtime: release.Runtime(controlPlane.Spec.DesiredVersion())},
	})
	for i := range machines.Items {
		if host := reachable(&machines.Items[i]); host != "" && machines.Items[i].DeletionTimestamp.IsZero() {
			server := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port))}
			addContext(config, key.String()+"@"+machines.Items[i].Name, server.String(), authorities)
		}
	}
	return nil
}

func addContext(config *clientcmdapi.Config, name, server string, authorities []byte) {
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authorities}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: config.CurrentContext}
}

// serverCA is the certificate of the authority that the cluster's servers are known by. Its Secret has the private key as well, so that the
// right to read it is not one for every user.
func serverCA(ctx context.Context, c client.Reader, key client.ObjectKey) ([]byte, error) {
	name := client.ObjectKey{Namespace: key.Namespace, Name: secret.Name(key.Name, secret.ClusterCA)}
	found := &corev1.Secret{}
	err := c.Get(ctx, name, found)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("reading the cluster's authority in Secret %s, which holds its private key, too: %w; the right is not needed "+
			"with fqdn and caCerts in spec.localClusterAuthEndpoint of the Cluster", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority in Secret %s: %w", name, err)
	}
	if len(found.Data[secret.TLSCrtDataName]) == 0 {
		return nil, fmt.Errorf("there is no %s in Secret %s", secret.TLSCrtDataName, name)
	}
	return found.Data[secret.TLSCrtDataName], nil
}

// reachable is the address that people most likely reach a machine at: what its owner has said, or what its infrastructure or its Node
// says, or where it was when it registered. It is empty where nobody says anything.
func reachable(machine *clusterv1.Machine) string {
	if host := first(machine.Annotations[rkev1.AddressAnnotation]); host != "" {
		return host
	}
	for _, kind := range []clusterv1.MachineAddressType{
		clusterv1.MachineExternalIP, clusterv1.MachineExternalDNS, clusterv1.MachineInternalIP, clusterv1.MachineInternalDNS,
	} {
		addresses := machine.Status.Addresses
		if i := slices.IndexFunc(addresses, func(a clusterv1.MachineAddress) bool { return a.Type == kind }); i >= 0 {
			return addresses[i].Address
		}
	}
	return cmp.Or(first(machine.Annotations[rkev1.InternalAddressAnnotation]), machine.Annotations[rkev1.DetectedAddressAnnotation])
}

// first is the first of a list that commas separate.
func first(list string) string {
	entry, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(entry)
}
