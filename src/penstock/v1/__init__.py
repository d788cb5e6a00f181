"""What the build makes of `penstock.v1`, the gRPC service: `penstock_pb2` and `penstock_pb2_grpc`.

The source is `server/grpc/proto/penstock/v1/penstock.proto`; programs in other languages generate theirs.
In a checkout `python setup.py protos` writes the modules after the source has changed; `make` and tests do
so by themselves.

    import grpc
    from penstock.v1.penstock_pb2 import PublishRequest
    from penstock.v1.penstock_pb2_grpc import PenstockStub
"""
