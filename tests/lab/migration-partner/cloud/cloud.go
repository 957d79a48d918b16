// Package cloud is a cloud in memory, `--cloud-provider=lab`: every machine exists, and a Service gets an
// address of 198.18.0.0/24, or keeps the one that its status shows.
package cloud

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

type cloud struct {
	mu        sync.Mutex
	addresses map[string]string
}

func init() {
	cloudprovider.RegisterCloudProvider("lab", func(io.Reader) (cloudprovider.Interface, error) {
		return &cloud{addresses: map[string]string{}}, nil
	})
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return c, true }
func (c *cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return c, true }
func (c *cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (c *cloud) ProviderName() string                                              { return "lab" }
func (c *cloud) HasClusterID() bool                                                { return true }

func (c *cloud) InstanceExists(context.Context, *v1.Node) (bool, error)   { return true, nil }
func (c *cloud) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, nil }
func (c *cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return &cloudprovider.InstanceMetadata{ProviderID: "lab://" + node.Name}, nil
}

func (c *cloud) status(service *v1.Service, makes bool) (*v1.LoadBalancerStatus, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := service.Namespace + "/" + service.Name
	if ingress := service.Status.LoadBalancer.Ingress; c.addresses[key] == "" && len(ingress) > 0 {
		c.addresses[key] = ingress[0].IP
	}
	if c.addresses[key] == "" {
		if !makes {
			return nil, false
		}
		// The same after a restart, whatever else has been given meanwhile.
		hash := fnv.New32a()
		hash.Write([]byte(key))
		c.addresses[key] = fmt.Sprintf("198.18.0.%d", 1+hash.Sum32()%250)
	}
	vip := v1.LoadBalancerIPModeVIP
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: c.addresses[key], IPMode: &vip}}}, true
}

func (c *cloud) GetLoadBalancer(_ context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	status, exists := c.status(service, false)
	return status, exists, nil
}

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (c *cloud) EnsureLoadBalancer(_ context.Context, _ string, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	status, _ := c.status(service, true)
	return status, nil
}

func (c *cloud) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error {
	return nil
}

func (c *cloud) EnsureLoadBalancerDeleted(_ context.Context, _ string, service *v1.Service) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.addresses, service.Namespace+"/"+service.Name)
	return nil
}
