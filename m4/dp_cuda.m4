# DP_CUDA: --with-cuda[=DIR|no|guess], --with-cuda-arch="80 90". Finds the toolkit, cuBLAS, cuDNN, NCCL and CUPTI. CUDA is
# guessed; it is a hard error only when asked for by name. The conditionals are declared outside all branches.

# DP_CUDA_LIB(name, library, function, header): sets have_NAME.
AC_DEFUN([DP_CUDA_LIB],[
  have_$1=no
  AS_IF([test "x$have_cuda" = xyes],[
    AC_CHECK_HEADER([$4],[AC_CHECK_LIB([$2],[$3],[have_$1=yes])])
  ])
  AS_IF([test "x$have_$1" = xyes],[AC_DEFINE([HAVE_]m4_toupper([$1]),[1],[$1 is present])])
])

AC_DEFUN([DP_CUDA],[
AC_ARG_VAR([NVCC],[CUDA compiler])
AC_ARG_VAR([NVCCFLAGS],[CUDA compiler flags])
AC_ARG_WITH([cuda],[AS_HELP_STRING([--with-cuda=DIR],[use the CUDA Toolkit in DIR (default: when found)])],[],[with_cuda=guess])
AC_ARG_WITH([cuda-arch],[AS_HELP_STRING([--with-cuda-arch=LIST],[GPU architectures (default: "80 90")])],
  [],[with_cuda_arch="80 90"])
have_cuda=no
AS_IF([test "x$with_cuda" != xno],[
  AS_CASE([$with_cuda],[yes|guess],[cuda_path=/usr/local/cuda],[cuda_path=$with_cuda])
  AC_PATH_PROG([NVCC],[nvcc],[],[$cuda_path/bin:$PATH])
  CUDA_CPPFLAGS="-I$cuda_path/include -I$cuda_path/extras/CUPTI/include"
  AS_IF([test -d "$cuda_path/lib64"],[cuda_libdir=$cuda_path/lib64],[cuda_libdir=$cuda_path/lib])
  CUDA_LDFLAGS="-L$cuda_libdir -L$cuda_path/extras/CUPTI/lib64 -L$cuda_libdir/stubs"
  AS_IF([test -n "$NVCC"],[
    save_CPPFLAGS=$CPPFLAGS; save_LDFLAGS=$LDFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
    AC_CHECK_HEADER([cuda_runtime.h],[AC_CHECK_LIB([cudart],[cudaGetDeviceCount],[have_cuda=yes])])
    DP_CUDA_LIB([cublas],[cublasLt],[cublasLtCreate],[cublasLt.h])
    DP_CUDA_LIB([cudnn],[cudnn],[cudnnGetVersion],[cudnn.h])
    DP_CUDA_LIB([nccl],[nccl],[ncclGetVersion],[nccl.h])
    DP_CUDA_LIB([cupti],[cupti],[cuptiGetVersion],[cupti.h])
    CPPFLAGS=$save_CPPFLAGS; LDFLAGS=$save_LDFLAGS; LIBS=$save_LIBS
  ])
  AS_IF([test "x$have_cuda" = xno && test "x$with_cuda" != xguess],[AC_MSG_ERROR([CUDA was asked for but not found])])
])
for dp_lib in cublas cudnn nccl cupti; do eval "test -n \"\$have_$dp_lib\" || have_$dp_lib=no"; done
NVCC_GENCODE=
for a in $with_cuda_arch; do NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_$a,code=sm_$a"; done
AS_IF([test "x$have_cuda" = xyes],[AC_DEFINE([HAVE_CUDA],[1],[The CUDA Toolkit is present])])
AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LDFLAGS]) AC_SUBST([NVCC_GENCODE])
AC_SUBST([CUDART_LIBS],["-lcudart"])
AM_CONDITIONAL([HAVE_CUDA],[test "x$have_cuda" = xyes])
])
