//go:build published

package nodedriver_test

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// published returns rancher-machine, which holds the drivers that are built into Rancher, and a runner.
func published(t *testing.T) (*programs.Program, *nodedriver.Runner) {
	t.Helper()
	program, err := filepath.Abs("../../bin/rancher-machine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make published-drivers builds it and runs this test", err)
	}
	runner, err := nodedriver.NewRunner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &programs.Program{Path: program}, runner
}

// TestPublishedFlags reads the flags of the drivers of rancher-machine. The names of their fields are those of manifests in the field; a
// few of each driver are here, as Rancher's documentation has them.
func TestPublishedFlags(t *testing.T) {
	program, runner := published(t)
	for driver, names := range map[string][]string{
		"amazonec2": {"accessKey", "ami", "httpTokens", "iamInstanceProfile", "instanceType", "privateAddressOnly", "region", "rootSize",
			"securityGroup", "sshUser", "subnetId", "tags", "userdata", "vpcId", "zone"},
		"azure": {"clientId", "clientSecret", "image", "location", "managedDisks", "openPort", "resourceGroup", "size", "subscriptionId",
			"vnet"},
		"digitalocean": {"accessToken", "backups", "image", "ipv6", "monitoring", "privateNetworking", "region", "size", "userdata"},
		"exoscale":     {"apiKey", "apiSecretKey", "instanceProfile"},
		"google":       {"authEncodedJson", "diskSize", "machineImage", "machineType", "project", "zone"},
		"openstack":    {"authUrl", "bootFromVolume", "flavorName", "imageName", "netName", "secGroups", "userDataFile", "username"},
		"vmwarevsphere": {"cfgparam", "cloneFrom", "cloudinit", "cpuCount", "datacenter", "datastore", "diskSize", "memorySize", "network",
			"password", "username", "vcenter", "vcenterPort"},
	} {
		t.Run(driver, func(t *testing.T) {
			flags, err := runner.Flags(t.Context(), driver, program)
			if err != nil {
				t.Fatal(err)
			}
			fields, err := schema.Fields(driver, flags, nil)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, field := range fields {
				have = append(have, field.Name)
			}
			for _, name := range names {
				if !slices.Contains(have, name) {
					t.Errorf("no field %s among %v", name, have)
				}
			}
			for _, crd := range schema.Definitions(driver, driver, fields) {
				if crd.Spec.Versions[0].Schema == nil {
					t.Errorf("%s has no schema", crd.Name)
				}
			}
		})
	}
}

// TestPublishedDriver makes a machine with the driver amazonec2 of rancher-machine, at an API that answers as EC2 does, rotates the
// credential and removes the machine.
func TestPublishedDriver(t *testing.T) {
	program, runner := published(t)
	cloud := &ec2{accessKey: "planted-access-key-1", groups: map[string]string{}}
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	m := &nodedriver.Machine{
		Driver: "amazonec2", Program: program, Name: "pool-1", Hostname: "pool-1-host",
		Spec: map[string]any{"endpoint": server.URL, "sslDisable": true, "region": "eu-central-1", "zone": "a", "vpcId": "vpc-1",
			"subnetId": "subnet-1", "ami": "ami-1", "instanceType": "t3.large", "rootSize": "32", "tags": "owner,me",
			"securityGroup": []any{"rancher-nodes"}, "userdata": "#cloud-config\npackages: [jq]\n"},
		Credential: nodedriver.Credential("amazonec2", map[string][]byte{"amazonec2credentialConfig-accessKey": []byte("planted-access-key-1"),
			"amazonec2credentialConfig-secretKey": []byte("planted-secret-key"), "amazonec2credentialConfig-defaultRegion": []byte("us-east-1")}),
		Script: []byte("#!/bin/sh\nexport CATTLE_TOKEN='planted-join-token'\n"),
	}
	keepState(m)
	noKeys := func(texts ...any) {
		t.Helper()
		text := fmt.Sprintln(texts...)
		for _, secret := range []string{"planted-access-key", "planted-secret-key", "planted-join-token"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %q", secret, text)
			}
		}
	}
	addresses, log, err := runner.Create(t.Context(), m)
	noKeys(log, err)
	if err != nil {
		t.Fatal(err, log)
	}
	if want := []nodedriver.Address{{Address: "198.51.100.7"}, {Internal: true, Address: "10.0.0.7"}}; !slices.ContainsFunc(addresses,
		func(a nodedriver.Address) bool { return a == want[0] }) || !slices.ContainsFunc(addresses,
		func(a nodedriver.Address) bool { return a == want[1] }) {
		t.Errorf("the machine has the addresses %v, not %v", addresses, want)
	}
	if cloud.instance["InstanceType"] != "t3.large" || cloud.instance["ImageId"] != "ami-1" || len(m.State.Files["id_rsa"]) == 0 {
		t.Errorf("the instance was made of %v; files %d", cloud.instance, len(m.State.Files))
	}
	var config struct {
		Packages []string
		Hostname string
		Runcmd   []string
	}
	data, err := base64.StdEncoding.DecodeString(cloud.instance["UserData"])
	if err = errors.Join(err, yaml.Unmarshal(data, &config)); err != nil || len(config.Packages) != 1 || config.Hostname != "pool-1-host" ||
		len(config.Runcmd) != 1 {
		t.Errorf("the user data is %s: %+v, %v", data, config, err)
	}

	cloud.accessKey = "planted-access-key-2"
	if _, err := runner.Remove(t.Context(), m); err == nil || !strings.Contains(err.Error(), "AuthFailure") {
		t.Errorf("with the old credential: %v", err)
	}
	m.Credential["accessKey"] = "planted-access-key-2"
	log, err = runner.Remove(t.Context(), m)
	noKeys(log, err)
	if err != nil || cloud.instance != nil || len(cloud.keys) > 0 {
		t.Errorf("with the new credential: %v; left %v, %v: %s", err, cloud.instance, cloud.keys, log)
	}
	if _, err := runner.Remove(t.Context(), m); err != nil {
		t.Errorf("a machine that is gone: %v", err)
	}
}

// TestPublishedDriverWithKey makes a machine with a key pair of the user's, by its content, once with the name of the pair at the cloud and
// once without.
func TestPublishedDriverWithKey(t *testing.T) {
	program, runner := published(t)
	key := newKey(t)
	for name, want := range map[string][]string{"": {"pool-1"}, "mine": nil} {
		cloud := &ec2{accessKey: "planted-access-key-1", groups: map[string]string{}}
		server := httptest.NewServer(cloud)
		m := &nodedriver.Machine{
			Driver: "amazonec2", Program: program, Name: "pool-1", Hostname: "pool-1-host", Files: schema.Files{"sshKeypath": "sshKeyContents"},
			Spec: map[string]any{"endpoint": server.URL, "sslDisable": true, "region": "eu-central-1", "zone": "a", "vpcId": "vpc-1",
				"subnetId": "subnet-1", "ami": "ami-1", "securityGroup": []any{"rancher-nodes"}, "sshKeyContents": key, "keypairName": name},
			Credential: nodedriver.Credential("amazonec2", map[string][]byte{
				"amazonec2credentialConfig-accessKey": []byte("planted-access-key-1"),
				"amazonec2credentialConfig-secretKey": []byte("planted-secret-key")}),
			Script: []byte("#!/bin/sh\n"),
		}
		keepState(m)
		if _, log, err := runner.Create(t.Context(), m); err != nil {
			t.Fatalf("key pair %q: %v %s", name, err, log)
		}
		imported := len(cloud.keys) == len(want) && (name == "" || cloud.instance["KeyName"] == name)
		if !imported || string(m.State.Files["id_rsa"]) != key {
			t.Errorf("key pair %q: the cloud has %v, the instance %q, the state a key of %d bytes", name, cloud.keys, cloud.instance["KeyName"],
				len(m.State.Files["id_rsa"]))
		}
		if log, err := runner.Remove(t.Context(), m); err != nil || cloud.instance != nil {
			t.Errorf("key pair %q: %v, left %v: %s", name, err, cloud.instance, log)
		}
		server.Close()
	}
}

// ec2 is as much of the API of EC2, version 2016-11-15, as the driver asks for.
type ec2 struct {
	mutex     sync.Mutex
	accessKey string
	// instance has the parameters that the only instance was made with.
	instance map[string]string
	keys     []string
	groups   map[string]string
}

func (c *ec2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	code, answer := http.StatusOK, ""
	var refused *refusal
	err := r.ParseForm()
	if err == nil && !strings.Contains(r.Header.Get("Authorization"), "Credential="+c.accessKey+"/") {
		err = &refusal{http.StatusUnauthorized, "AuthFailure"}
	}
	if err == nil {
		answer, err = c.answer(r)
	}
	action := r.Form.Get("Action")
	if errors.As(err, &refused) {
		code = refused.code
		answer = "<Response><Errors><Error><Code>" + refused.name + "</Code><Message>refused</Message></Error></Errors></Response>"
	} else {
		answer = "<" + action + "Response>" + answer + "</" + action + "Response>"
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(xml.Header + answer))
}

type refusal struct {
	code int
	name string
}

func (r *refusal) Error() string { return r.name }

func (c *ec2) answer(r *http.Request) (string, error) {
	get := r.Form.Get
	switch action := get("Action"); action {
	case "DescribeSubnets":
		return "<subnetSet><item><subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId></item></subnetSet>", nil
	case "DescribeImages":
		return "<imagesSet><item><imageId>ami-1</imageId><rootDeviceName>/dev/sda1</rootDeviceName></item></imagesSet>", nil
	case "ImportKeyPair":
		c.keys = append(c.keys, get("KeyName"))
		return "<keyName>" + get("KeyName") + "</keyName>", nil
	case "DeleteKeyPair":
		c.keys = slices.DeleteFunc(c.keys, func(name string) bool { return name == get("KeyName") })
		return "<return>true</return>", nil
	case "DescribeSecurityGroups":
		groups := ""
		for name, id := range c.groups {
			groups += "<item><groupId>" + id + "</groupId><groupName>" + name + "</groupName><vpcId>vpc-1</vpcId></item>"
		}
		return "<securityGroupInfo>" + groups + "</securityGroupInfo>", nil
	case "CreateSecurityGroup":
		c.groups[get("GroupName")] = "sg-1"
		return "<groupId>sg-1</groupId>", nil
	case "CreateTags", "AuthorizeSecurityGroupIngress":
		return "<return>true</return>", nil
	case "RunInstances":
		c.instance = map[string]string{"KeyName": get("KeyName")}
		for _, name := range []string{"InstanceType", "ImageId", "UserData"} {
			c.instance[name] = get(name)
		}
		return "<instancesSet>" + c.describe() + "</instancesSet>", nil
	case "DescribeInstances":
		if c.instance == nil {
			return "", &refusal{http.StatusBadRequest, "InvalidInstanceID.NotFound"}
		}
		return "<reservationSet><item><instancesSet>" + c.describe() + "</instancesSet></item></reservationSet>", nil
	case "TerminateInstances":
		if c.instance == nil {
			return "", &refusal{http.StatusBadRequest, "InvalidInstanceID.NotFound"}
		}
		c.instance = nil
		return "<instancesSet/>", nil
	default:
		return "", &refusal{http.StatusBadRequest, "InvalidAction." + action}
	}
}

func (c *ec2) describe() string {
	return "<item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState>" +
		"<keyName>" + c.instance["KeyName"] + "</keyName><privateIpAddress>10.0.0.7</privateIpAddress><ipAddress>198.51.100.7</ipAddress></item>"
}
