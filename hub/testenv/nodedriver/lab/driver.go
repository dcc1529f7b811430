// Program lab is a node driver for tests. It serves the plugin protocol as published drivers do, and makes machines at a cloud for tests:
// an HTTP server at the URL of its flag. A line "MODE=..." appended to the program's file makes it misbehave.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/drover-dev/drover/hub/testenv/nodedriver/mcnflag"
	"github.com/drover-dev/drover/hub/testenv/nodedriver/rpcdriver"
)

func main() {
	mode := readMode()
	version := 1
	switch mode {
	case "hang":
		time.Sleep(time.Hour)
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: something broke")
		os.Exit(2)
	case "elsewhere":
		fmt.Println("192.0.2.1:80")
		time.Sleep(time.Hour)
	case "nonsense":
		fmt.Println(strings.Repeat("x", 4096))
		time.Sleep(time.Hour)
	case "version":
		version = 7
	}
	if mode == "flood" {
		go func() {
			for {
				fmt.Fprintln(os.Stderr, strings.Repeat("flood ", 1000))
			}
		}()
	}
	if err := rpcdriver.Serve(&driver{mode: mode}, version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readMode() string {
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		return ""
	}
	tail := string(program[max(0, len(program)-64):])
	if _, mode, ok := strings.Cut(tail, "MODE="); ok {
		return strings.TrimSpace(mode)
	}
	return ""
}

// driver is the driver. Its exported fields are its configuration.
type driver struct {
	mode string

	MachineName, StorePath, SSHUser, SSHKeyPath, IPAddress string
	SSHPort                                                int
	URL, Token, Image, UserData, ID, KeyFile, KeyPair      string
	Size                                                   int
	Tags                                                   []string
	Private                                                bool
}

func (d *driver) CreateFlags() []any {
	flags := []any{
		&mcnflag.StringFlag{Name: "lab-url", Usage: "URL of the API", EnvVar: "LAB_URL"},
		&mcnflag.StringFlag{Name: "lab-token", Usage: "Token of the API", EnvVar: "LAB_TOKEN"},
		&mcnflag.StringFlag{Name: "lab-image", Usage: "Image of the machine", Value: "debian"},
		&mcnflag.IntFlag{Name: "lab-size", Usage: "Number of processors", Value: 2},
		&mcnflag.StringSliceFlag{Name: "lab-tags", Usage: "Tags of the machine"},
		&mcnflag.BoolFlag{Name: "lab-private-networking", Usage: "Use the private network"},
		&mcnflag.StringFlag{Name: "lab-ssh-user", Usage: "User for SSH", Value: "root"},
	}
	switch d.mode {
	case "userdata":
		flags = append(flags, &mcnflag.StringFlag{Name: "lab-userdata", Usage: "File with user data"})
	case "files":
		flags = append(flags, &mcnflag.StringFlag{Name: "lab-key-file", Usage: "File with a key", Value: "/none"})
	case "upgraded":
		flags = append(flags, &mcnflag.StringFlag{Name: "lab-zone", Usage: "Zone", Value: "north"})
	case "twice":
		flags = append(flags, &mcnflag.IntFlag{Name: "lab-s-ize"}, &mcnflag.IntFlag{Name: "lab-sIze"})
	case "foreign":
		flags = append(flags, &mcnflag.StringFlag{Name: "other-thing"})
	case "many":
		for i := range 5000 {
			flags = append(flags, &mcnflag.StringFlag{Name: fmt.Sprintf("lab-f%d", i)})
		}
	case "huge":
		flags = append(flags, &mcnflag.StringFlag{Name: "lab-huge", Value: strings.Repeat("x", 10<<20)})
	case "slow":
		time.Sleep(time.Hour)
	case "look":
		flags = append(flags, &mcnflag.StringFlag{Name: "lab-seen", Value: look()})
	case "exit":
		fmt.Fprintln(os.Stderr, "fatal: the token is "+os.Getenv("LAB_TOKEN"))
		os.Exit(3)
	}
	return flags
}

// look tells what the driver can see of the machine that it runs on.
func look() string {
	var seen []string
	for _, dir := range []string{"/", "/home", "/tmp", "/proc", "/etc", "/root", "/var"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			seen = append(seen, filepath.Join(dir, e.Name()))
		}
	}
	err := os.WriteFile("/written", nil, 0o600)
	return fmt.Sprintf("pid %d uid %d root writable %v files %v env %v", os.Getpid(), os.Getuid(), err == nil, seen, os.Environ())
}

func (d *driver) SetFlags(values map[string]any) error {
	text := func(name string) string { s, _ := values[name].(string); return s }
	d.URL, d.Token, d.Image, d.SSHUser = text("lab-url"), text("lab-token"), text("lab-image"), text("lab-ssh-user")
	d.UserData, d.KeyFile = text("lab-userdata"), text("lab-key-file")
	d.Size, _ = values["lab-size"].(int)
	d.Tags, _ = values["lab-tags"].([]string)
	d.Private, _ = values["lab-private-networking"].(bool)
	if d.Size < 1 {
		return fmt.Errorf("lab-size must be at least 1, got %d", d.Size)
	}
	return nil
}

func (d *driver) Config() ([]byte, error)    { return json.Marshal(d) }
func (d *driver) SetConfig(raw []byte) error { return json.Unmarshal(raw, d) }

func (d *driver) keyPath() string {
	return filepath.Join(d.StorePath, "machines", d.MachineName, "id_rsa")
}

func (d *driver) SSH() (host, user, key string, port int) {
	if d.mode == "keypath" {
		return d.IPAddress, d.SSHUser, "/etc/shadow", d.SSHPort
	}
	return d.IPAddress, d.SSHUser, d.keyPath(), d.SSHPort
}

func (d *driver) IP() (string, error) { return d.IPAddress, nil }

func (d *driver) PreCreateCheck() error {
	_, err := d.call(http.MethodGet, "/", nil)
	return err
}

// Instance is what the cloud is asked for.
type Instance struct {
	Name, Image, PublicKey, UserData string
	Size                             int
	Tags                             []string
	Private                          bool
}

func (d *driver) Create() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.keyPath(), pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	var userData []byte
	if d.UserData != "" {
		if userData, err = os.ReadFile(d.UserData); err != nil {
			return err
		}
	}
	if d.mode == "files" { // the image is named for what is in the files
		public, err := os.ReadFile(d.KeyFile + ".pub")
		if err != nil {
			return err
		}
		d.Image = strings.TrimSpace(string(public))
	}
	fmt.Fprintf(os.Stderr, "creating %s with the token %s\n", d.MachineName, d.Token)
	answer, err := d.call(http.MethodPost, "/instances", Instance{
		Name: d.MachineName, Image: d.Image, PublicKey: string(ssh.MarshalAuthorizedKey(key)), UserData: string(userData), Size: d.Size,
		Tags: d.Tags, Private: d.Private,
	})
	if err != nil {
		return err
	}
	var created struct {
		ID, IP string
		Port   int
	}
	if err := json.Unmarshal(answer, &created); err != nil {
		return err
	}
	d.ID, d.IPAddress, d.SSHPort = created.ID, created.IP, created.Port
	if d.mode == "keypair" {
		d.KeyPair = d.MachineName
	}
	if d.mode == "die" {
		time.Sleep(3 * time.Second) // the hub saves what it knows meanwhile
		fmt.Fprintln(os.Stderr, "panic: died with the token "+d.Token)
		os.Exit(2)
	}
	_, err = d.call(http.MethodPost, "/instances/"+d.ID+"/start", nil)
	return err
}

func (d *driver) Remove() error {
	if d.ID == "" {
		return nil
	}
	if d.KeyPair != "" { // an earlier removal has deleted it
		return fmt.Errorf("key pair not found")
	}
	if d.mode == "files" {
		private, err := os.ReadFile(d.KeyFile)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "removing %s with the key %s\n", d.MachineName, private)
	}
	if d.mode == "die-removing" {
		fmt.Fprintln(os.Stderr, "volume not found, removing the instance")
		os.Exit(2)
	}
	_, err := d.call(http.MethodDelete, "/instances/"+d.ID, nil)
	return err
}

func (d *driver) State() (int, error) {
	_, err := d.call(http.MethodGet, "/instances/"+d.ID, nil)
	if d.mode == "stopped" {
		return 4, err
	}
	return 1, err
}

func (d *driver) call(method, path string, body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(method, d.URL+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+d.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s with the token %s: %s: %s", method, path, d.Token, response.Status, answer)
	}
	return answer, nil
}
