module leasehold.example/rolling

go 1.19

require (
	google.golang.org/grpc v1.64.1
	google.golang.org/protobuf v1.33.0
	leasehold.example/go v0.0.0
)

require (
	golang.org/x/net v0.26.0 // indirect
	golang.org/x/sys v0.21.0 // indirect
	golang.org/x/text v0.16.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240318140521-94a12d6c2237 // indirect
)

replace leasehold.example/go => ../../../../src/go
