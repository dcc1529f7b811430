package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/machines"
)

// deployed is the name of the MachineDeployments and of the Secret with their bootstrap data.
const deployed = "deployed"

// provisionServers creates Clusters of a server alone.
func (e *environment) provisionServers() ([]figures.Milestone, error) {
	if err := e.createClusters(); err != nil {
		return nil, err
	}
	data := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployed},
		Type:       clusterv1.ClusterSecretType, StringData: map[string]string{"value": "#!/bin/sh\n"},
	}
	if err := e.client.Create(e.ctx, data); err != nil {
		return nil, fmt.Errorf("creating the bootstrap data: %w", err)
	}
	if err := e.awaitClusters(); err != nil {
		return nil, err
	}
	return nil, e.settle()
}

// deploy has Cluster API and the infrastructure provider make the workers. For the hub's own controllers there is nothing to do.
func (e *environment) deploy() ([]figures.Milestone, error) {
	began := time.Now()
	for _, c := range e.clusters {
		for i, replicas := range pools(c.workers, c.poolSize) {
			if err := e.client.Create(e.ctx, c.newDeployment(i, replicas)); err != nil {
				return nil, fmt.Errorf("creating MachineDeployment %d of %s: %w", i, c.name(), err)
			}
		}
	}
	all := len(e.clusters) * (e.workers + 1)
	reached, err := e.await(began, []stage{{"Machines created", created, all}, {"Machines ready", ready, all}})
	if err != nil {
		return nil, err
	}
	return reached, e.settle()
}

func (c *cluster) newDeployment(number int, replicas int32) *clusterv1.MachineDeployment {
	name, data := fmt.Sprintf("%s-%s-%d", c.name(), deployed, number), deployed
	labels := map[string]string{clusterv1.ClusterNameLabel: c.name(), "scale.test/deployment": name}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	deployment.Spec = clusterv1.MachineDeploymentSpec{
		ClusterName: c.name(), Replicas: &replicas, Selector: metav1.LabelSelector{MatchLabels: labels},
		Template: clusterv1.MachineTemplateSpec{
			ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
			Spec: clusterv1.MachineSpec{
				ClusterName: c.name(), Version: version, Bootstrap: clusterv1.Bootstrap{DataSecretName: &data},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: infrastructureGroup, Kind: "DevMachineTemplate", Name: "workers",
				},
			},
		},
	}
	return deployment
}

// addNode gives a worker of a MachineDeployment its Node.
func (e *environment) addNode(m *clusterv1.Machine) {
	of := slices.IndexFunc(e.clusters, func(c *cluster) bool { return c.name() == m.Spec.ClusterName })
	if of < 0 || m.Labels["scale.test/deployment"] == "" {
		return
	}
	e.clusters[of].fleet.Nodes.Add(machines.Machine{Name: m.Name, Address: "127.79.0.1"}, m.Spec.ProviderID, version)
}
